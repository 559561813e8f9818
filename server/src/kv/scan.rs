//! Scans: the records of the ring in order, page by page, partition by partition.
//!
//! Each partition is read from a quorum of its replicas, so each key is read linearizably; the scan
//! as a whole is not a snapshot. A node reads the partitions that it has a replica of. A local scan
//! ends at the first partition without a replica here; any other scan continues at the node that
//! leads that partition.
//!
//! Some pages of this partition and the next ones are read ahead, while others are searched and
//! sent. Even a page that was read ahead was read after the scan began.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _};
use prost::Message as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use torc_driver::NoQuorum;
use torc_limits::budget::{Charge, TINY};
use torc_member::fault::store_fault;
use torc_proto::v1::{Entry, ScanMatch, ScanRequest, ScanResponse};
use torc_proto::{Fault, Reason, ScanPosition, find_namespace, version_to_wire};
use torc_record::{DIGEST_LEN, Digest, Key, NamespaceId, Record, State};
use torc_replication::Locator;
use torc_ring::topology::{GenerationShape, RoutingTable};
use torc_ring::{NodeId, Partition, Token};
use torc_sketch::rolling::Match;
use torc_sketch::search::Matches;

use super::fault::advised;
use super::node::KvNode;
use super::request::{foreign_digest, generation_of, other_generation};
use super::run::Attempts;
use super::search::Search;
use crate::call::DEFAULT_DEADLINE;
use torc_limits::admission::stopping;
use torc_limits::answers::{self, Messages, Stopped};

pub(crate) type ScanStream = Pin<Box<dyn Stream<Item = Result<ScanResponse, Status>> + Send>>;

/// The position alone is sent after this many pages without an entry, or after `SILENT_FOR`.
const SILENT_PAGES: u32 = 256;
const SILENT_FOR: Duration = Duration::from_secs(1);
/// Time for another node to send its next page or its position.
const PAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Assumed size of a page until it is read and its size is known.
const PAGE_BYTES: usize = 2 << 20;
/// Pages buffered for a slow reader.
const PAGES_AHEAD: usize = 2;
/// Limit on the pages read ahead, and on their bytes. Reading several small pages at once takes
/// fewer messages.
const READ_AHEAD: usize = 32;
const READ_AHEAD_BYTES: usize = 4 * PAGE_BYTES;
/// A scan with a limit below this reads ahead only gradually: each page that did not suffice
/// doubles the window.
const LONG: u64 = 4_096;

/// A value has at most 1 MiB, and a search at most 64 patterns.
#[expect(
    clippy::cast_possible_truncation,
    reason = "both fit 32 bits, as stated above"
)]
fn match_to_wire(found: &Match) -> ScanMatch {
    ScanMatch {
        start: found.start as u32,
        pattern: found.pattern as u32,
    }
}

pub(crate) fn start(node: &Arc<KvNode>, request: ScanRequest) -> Result<ScanStream, Fault> {
    let table = node.member.routing()?;
    let namespace = scanned_namespace(&table, &request)?;
    let position = ScanPosition::from_bytes(&request.after)?;
    check_position(&table, (namespace, &request.namespace), &position)?;
    let (pages, last, receiver) = answers::channel(PAGES_AHEAD);
    let is_long = request.limit == 0 || request.limit >= LONG;
    let scan = Scan {
        node: Arc::clone(node),
        namespace,
        namespace_name: request.namespace,
        ahead: VecDeque::new(),
        window: if is_long { READ_AHEAD } else { 0 },
        cursor: position.clone(),
        position,
        left: if request.limit == 0 {
            u64::MAX
        } else {
            request.limit
        },
        local: request.local,
        keys_only: request.keys_only,
        search: Search::of(request.contains)?.map(Arc::new),
        silent: 0,
        sent: Instant::now(),
    };
    let classes = &node.limits.classes;
    let place = match scan.search {
        None => classes.scans.enter()?,
        Some(_) => classes.searches.enter()?,
    };
    tokio::spawn(async move {
        let _place = place;
        answers::end(last, scan.run(pages).await);
    });
    // A page that was taken is encoded next, and the answer is charged separately.
    let taken = |page: Result<Page, Status>| page.map(|page| page.0);
    Ok(Box::pin(ReceiverStream::new(receiver).map(taken)))
}

/// The namespace, or the generation that is current when the scan begins.
fn scanned_namespace(table: &RoutingTable, request: &ScanRequest) -> Result<NamespaceId, Fault> {
    let id = generation_of(table, &request.namespace, request.generation)?;
    if !request.goes_on && id != find_namespace(table, &request.namespace)? {
        return Err(other_generation(table, &request.namespace));
    }
    let shape = table.generations.get(&id).and_then(|it| it.shape());
    if let Some(GenerationShape::Keyless { .. }) = shape {
        let message = format!(
            "`{}` does not store its keys, so it cannot be scanned: get keys that you know",
            request.namespace
        );
        return Err(Fault::new(Reason::Invalid, message));
    }
    Ok(id)
}

/// Refuses a position of another namespace or cluster.
fn check_position(
    table: &RoutingTable,
    (namespace, name): (NamespaceId, &str),
    position: &ScanPosition,
) -> Result<(), Fault> {
    match position {
        ScanPosition::After { digest, key }
            if namespace.is_generation() && *digest != table.digest(namespace, key.as_bytes()) =>
        {
            let message = format!(
                "the position is not of the generation of `{name}` that the scan reads: begin the scan again"
            );
            Err(Fault::new(Reason::Invalid, message))
        }
        ScanPosition::After { digest, key }
            if *digest != Digest::of(&table.digest_key, namespace, key.as_bytes()) =>
        {
            Err(foreign_digest())
        }
        _ => Ok(()),
    }
}

/// Entries and the position after them, charged until the reader takes them.
struct Page(ScanResponse, #[expect(dead_code, reason = "held")] Charge);

type Pages = Messages<Page>;

struct Scan {
    node: Arc<KvNode>,
    namespace: NamespaceId,
    namespace_name: String,
    /// In ring order.
    ahead: VecDeque<PageAhead>,
    /// Limit on the length of `ahead`.
    window: usize,
    position: ScanPosition,
    /// The same for clients: it names no record that is not the scan's own. Its token is that of
    /// `position`.
    cursor: ScanPosition,
    left: u64,
    local: bool,
    keys_only: bool,
    /// Byte strings of which a value must contain one; `None` to take every value.
    search: Option<Arc<Search>>,
    /// Pages read since the last message, and the time of that message.
    silent: u32,
    sent: Instant,
}

/// Records in ring order with their matches, and the record to continue after; `None` at the end of
/// the partition. Pages have the records of all namespaces.
struct Records {
    records: Vec<(Record, Matches)>,
    last: Option<Locator>,
}

/// A page that is being read.
struct PageAhead {
    from: ScanPosition,
    charge: Charge,
    page: AbortOnDropHandle<Result<Records, Fault>>,
}

/// The result of one step of a scan.
enum Step {
    /// More may follow.
    On,
    /// The limit or the end of the ring was reached.
    Done,
    /// Another node leads the next partition.
    Elsewhere(NodeId),
}

impl Scan {
    async fn run(mut self, pages: Pages) -> Result<(), Stopped> {
        let mut attempts = Attempts::new(Instant::now() + DEFAULT_DEADLINE);
        loop {
            if pages.is_closed() {
                return Err(Stopped::Gone);
            }
            if self.node.closing.is_cancelled() {
                return Err(stopping().into());
            }
            let step = match self.next_place() {
                Ok(None) => self.partition(&pages).await?,
                Ok(Some(node)) => Ok(Step::Elsewhere(node)),
                Err(fault) => Err(fault),
            };
            let step = match step {
                Ok(Step::Elsewhere(_)) if self.local => {
                    let charge = self.node.limits.budget.force(0);
                    return self.send(&pages, vec![], false, charge).await;
                }
                Ok(Step::Elsewhere(node)) => match self.elsewhere(node, &pages).await? {
                    // Any node can read the partition. No step is lost, because earlier pages were
                    // passed on.
                    Err(_) => self.partition(&pages).await?,
                    step => step,
                },
                step => step,
            };
            match step {
                Ok(Step::Done) => return Ok(()),
                Ok(_) => attempts = Attempts::new(Instant::now() + DEFAULT_DEADLINE),
                Err(fault) if attempts.may_retry(&fault) => {
                    attempts.wait(&self.node).await?;
                }
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    fn at(&self, table: &RoutingTable) -> Partition {
        self.at_of(table, &self.position)
    }

    fn at_of(&self, table: &RoutingTable, position: &ScanPosition) -> Partition {
        table.partitions.holding(self.namespace, position.token())
    }

    /// The node that leads the next partition; `None` if this node has a replica of it that serves
    /// reads, or holds the generation there.
    fn next_place(&self) -> Result<Option<NodeId>, Fault> {
        let table = self.node.member.routing()?;
        let partition = self.at(&table);
        if self.is_here(partition)? {
            return Ok(None);
        }
        let lead = table.state(partition).map(|state| state.lead);
        Ok(lead.filter(|lead| !self.node.member.goes_here(*lead)))
    }

    fn is_here(&self, partition: Partition) -> Result<bool, Fault> {
        let registers = self.node.member.registers()?;
        Ok(if self.namespace.is_generation() {
            registers.has_generation(partition, self.namespace)
        } else {
            registers.reads(partition)
        })
    }

    /// Reads and sends one page of the partition at the position.
    async fn partition(&mut self, pages: &Pages) -> Result<Result<Step, Fault>, Stopped> {
        let (entries, done, charge) = match self.read_page(pages).await {
            Ok(page) => page,
            Err(fault) => return Ok(Err(fault)),
        };
        self.silent = if entries.is_empty() {
            self.silent + 1
        } else {
            0
        };
        // After a long time without entries, sends the position to show that the scan makes
        // progress.
        let is_silent = self.silent >= SILENT_PAGES || self.sent.elapsed() >= SILENT_FOR;
        if !entries.is_empty() || done || is_silent {
            (self.silent, self.sent) = (0, Instant::now());
            self.send(pages, entries, done, charge).await?;
        }
        Ok(Ok(if done { Step::Done } else { Step::On }))
    }

    async fn read_page(&mut self, pages: &Pages) -> Result<(Vec<Entry>, bool, Charge), Fault> {
        let table = self.node.member.routing()?;
        let partition = self.at(&table);
        let known = self.ahead.iter().position(|it| it.from == self.position);
        // Pages before that one were read elsewhere or must be read again.
        self.ahead.drain(..known.unwrap_or(self.ahead.len()));
        let reading = if let Some(reading) = self.ahead.pop_front() {
            reading
        } else {
            let until = Instant::now() + DEFAULT_DEADLINE;
            let charge = self.node.limits.budget.wait(PAGE_BYTES, until).await?;
            self.begin(self.position.clone(), partition, charge, pages)
        };
        self.read_ahead(partition, &table, pages);
        let PageAhead { charge, page, .. } = reading;
        let page = page.await.map_err(|_| stopping())??;
        let end = table.partitions.end(partition).0.checked_add(1);
        let end = end.map(|next| ScanPosition::At(Token(next)));
        let next = page
            .last
            .as_ref()
            .map(position_after)
            .or_else(|| end.clone());
        if let Some(next) = &next
            && self.at_of(&table, next) == partition
            && self.window > 0
            && let Some(charge) = self.room_ahead(partition)
        {
            let reading = self.begin(next.clone(), partition, charge, pages);
            self.ahead.push_front(reading);
        }
        let from = self.position.token();
        let mut entries = Vec::new();
        for (record, matches) in page.records {
            let wanted = record.namespace == self.namespace && Token::of(&record.digest) >= from;
            let entry = wanted.then(|| self.entry(&record, &matches)).flatten();
            let Some(entry) = entry else { continue };
            entries.push(entry);
            self.left -= 1;
            self.pass(&Locator::of(&record), true);
            if self.left == 0 {
                return Ok((entries, true, charge));
            }
        }
        self.window = (2 * self.window + 1).min(READ_AHEAD);
        match (&page.last, end) {
            (Some(last), _) => {
                let digest = table.digest(last.namespace, last.key.as_bytes());
                self.pass(
                    last,
                    last.namespace == self.namespace && last.digest == digest,
                );
            }
            (None, Some(end)) => self.go_to(end),
            (None, None) => {}
        }
        Ok((entries, next.is_none(), charge))
    }

    /// Continues after a record. The cursor names only own records, not those of another namespace or
    /// under the digest of another key: it is the token of such a record, unless the scan has passed an
    /// own record with that token.
    fn pass(&mut self, last: &Locator, is_own: bool) {
        self.position = position_after(last);
        if is_own {
            self.cursor = self.position.clone();
        } else if self.cursor.token() != self.position.token() {
            self.cursor = ScanPosition::At(self.position.token());
        }
    }

    fn go_to(&mut self, position: ScanPosition) {
        self.cursor = position.clone();
        self.position = position;
    }

    /// Begins to read the first pages of the following partitions, as far as this node has them and
    /// there is room.
    fn read_ahead(&mut self, partition: Partition, table: &RoutingTable, pages: &Pages) {
        let back = self.ahead.back();
        let mut last = back.map_or(partition, |it| self.at_of(table, &it.from));
        while self.ahead.len() < self.window
            && self.ahead_bytes() < READ_AHEAD_BYTES
            && let Some(next) = table.partitions.end(last).0.checked_add(1)
        {
            let from = ScanPosition::At(Token(next));
            last = self.at_of(table, &from);
            let is_here = self.is_here(last).is_ok_and(|here| here);
            let charge = is_here.then(|| self.room_ahead(last)).flatten();
            let Some(charge) = charge else { return };
            let reading = self.begin(from, last, charge, pages);
            self.ahead.push_back(reading);
        }
    }

    fn ahead_bytes(&self) -> usize {
        self.ahead.iter().map(|it| it.charge.bytes()).sum()
    }

    /// The charge of another page of a partition; `None` if there is no room.
    fn room_ahead(&self, partition: Partition) -> Option<Charge> {
        let bytes = self.node.store.kept_bytes(partition);
        let bytes = bytes
            .map_or(PAGE_BYTES, |bytes| 2 * bytes)
            .clamp(TINY, PAGE_BYTES);
        let budget = &self.node.limits.budget;
        budget.has_room(bytes).then(|| budget.force(bytes))
    }

    fn begin(
        &self,
        from: ScanPosition,
        partition: Partition,
        charge: Charge,
        pages: &Pages,
    ) -> PageAhead {
        let reader = PageReader {
            node: Arc::clone(&self.node),
            namespace: self.namespace,
            search: self.search.clone(),
            pages: pages.clone(),
        };
        let page = tokio::spawn({
            let from = from.clone();
            async move { reader.read(partition, from).await }
        });
        PageAhead {
            from,
            charge,
            page: AbortOnDropHandle::new(page),
        }
    }

    fn entry(&self, record: &Record, matches: &Matches) -> Option<Entry> {
        // Expiry was judged during the read, where it can be made to last.
        let State::Value { value, .. } = &record.state else {
            return None;
        };
        Some(Entry {
            key: record.key.clone().into_bytes(),
            value: if self.keys_only {
                bytes::Bytes::new()
            } else {
                value.clone()
            },
            version: Some(version_to_wire(record.version())),
            expires_at_ms: record.expires_at_ms().unwrap_or(0),
            matches: matches.first.iter().map(match_to_wire).collect(),
            more_matches: matches.more,
        })
    }

    async fn send(
        &self,
        pages: &Pages,
        entries: Vec<Entry>,
        done: bool,
        charge: Charge,
    ) -> Result<(), Stopped> {
        let cursor = self.cursor.to_bytes();
        let page = ScanResponse {
            entries,
            cursor,
            done,
        };
        charge.set(page.encoded_len());
        answers::send(pages, Page(page, charge), self.node.idle_time).await
    }

    /// Passes on the pages of another node's local scan.
    async fn elsewhere(
        &mut self,
        node: NodeId,
        pages: &Pages,
    ) -> Result<Result<Step, Fault>, Stopped> {
        let mut stream = match self.open_elsewhere(node).await {
            Ok(stream) => stream,
            Err(fault) => return Ok(Err(fault)),
        };
        let before = self.cursor.clone();
        loop {
            let until = Instant::now() + DEFAULT_DEADLINE;
            let charge = match self.node.limits.budget.wait(PAGE_BYTES, until).await {
                Ok(charge) => charge,
                Err(fault) => return Ok(Err(fault)),
            };
            let page = tokio::select! {
                page = stream.next() => page,
                // Dropping the stream also stops the other node.
                () = pages.closed() => return Err(Stopped::Gone),
                () = tokio::time::sleep(PAGE_TIMEOUT) => return Ok(Err(silent())),
            };
            let Some(page) = page else { break };
            let page = match page {
                Ok(page) => page,
                Err(status) => return Ok(Err(Fault::of_harmless(&status))),
            };
            self.left = self.left.saturating_sub(page.entries.len() as u64);
            match ScanPosition::from_bytes(&page.cursor) {
                Ok(position) => self.go_to(position),
                Err(error) => return Ok(Err(error.into())),
            }
            let done = page.done || self.left == 0;
            if !page.entries.is_empty() || done || page.cursor != before.to_bytes() {
                charge.set(page.encoded_len());
                let page = Page(ScanResponse { done, ..page }, charge);
                answers::send(pages, page, self.node.idle_time).await?;
            }
            if done {
                return Ok(Ok(Step::Done));
            }
        }
        if self.cursor == before {
            // The other node no longer leads the partition, or does not lead it yet: look again.
            let message = "the scan's next partition is moving: retry";
            return Ok(Err(Fault::new(Reason::StaleEpoch, message)));
        }
        Ok(Ok(Step::On))
    }

    async fn open_elsewhere(&self, node: NodeId) -> Result<tonic::Streaming<ScanResponse>, Fault> {
        let generation = self.namespace.is_generation().then_some(self.namespace.0);
        let request = ScanRequest {
            generation: generation.unwrap_or(0),
            namespace: self.namespace_name.clone(),
            after: self.cursor.to_bytes(),
            limit: if self.left == u64::MAX { 0 } else { self.left },
            local: true,
            keys_only: self.keys_only,
            contains: self
                .search
                .as_ref()
                .map(|it| it.wanted())
                .unwrap_or_default(),
            // This node has checked the generation.
            goes_on: true,
        };
        let member = &self.node.member;
        let mut client = member.peers.kv(&member.recipient(node)?)?;
        let opening = tokio::time::timeout(PAGE_TIMEOUT, client.scan(request));
        let opened = opening.await.map_err(|_| silent())?;
        opened
            .map(tonic::Response::into_inner)
            .map_err(|status| Fault::of_harmless(&status))
    }
}

/// Reads the pages of a scan.
struct PageReader {
    node: Arc<KvNode>,
    namespace: NamespaceId,
    search: Option<Arc<Search>>,
    pages: Pages,
}

impl PageReader {
    async fn read(self, partition: Partition, from: ScanPosition) -> Result<Records, Fault> {
        let after = self.cursor(from, partition)?;
        if self.namespace.is_generation() {
            let (records, last) = self.of_generation(partition, after).await?;
            return self.searched(records, last).await;
        }
        let filtered = self.filtered(partition, after.as_ref()).await?;
        let (records, last) = match filtered {
            Some(found) => found,
            None => self.of_quorum(partition, after).await?,
        };
        self.searched(records, last).await
    }

    async fn searched(
        &self,
        records: Vec<Record>,
        last: Option<Locator>,
    ) -> Result<Records, Fault> {
        let records = match &self.search {
            Some(search) if !records.is_empty() => {
                search.page(&self.node, records, &self.pages).await?
            }
            _ => {
                let all = records.into_iter();
                all.map(|record| (record, Matches::default())).collect()
            }
        };
        Ok(Records { records, last })
    }

    /// The next matching records, searched in this node's store; `None` if a quorum does not hold
    /// the same content.
    async fn filtered(
        &self,
        partition: Partition,
        after: Option<&Locator>,
    ) -> Result<Option<(Vec<Record>, Option<Locator>)>, Fault> {
        let Some(search) = &self.search else {
            return Ok(None);
        };
        let page = search.filtered_page(&self.node, partition, after.cloned(), &self.pages);
        let Some(page) = page.await? else {
            return Ok(None);
        };
        let registers = self.node.member.registers()?;
        let deadline = Instant::now() + DEFAULT_DEADLINE;
        let listed = registers.list_filtered(partition, after.map(Locator::id), page, deadline);
        let listed = listed
            .await
            .map_err(|NoQuorum| advised(&self.node, partition))?;
        Ok(listed.map(|found| (found.records, found.next)))
    }

    /// The cursor that a page follows; `None` at the beginning of the partition. For a position
    /// further on, a page from the beginning could end before that position, and the scan would go
    /// back.
    fn cursor(&self, from: ScanPosition, partition: Partition) -> Result<Option<Locator>, Fault> {
        let (digest, key) = match from {
            ScanPosition::After { digest, key } => (digest, key),
            ScanPosition::At(token) => {
                let start = self.node.member.routing()?.partitions.start(partition);
                let before = token.0.checked_sub(1).filter(|_| token > start);
                // The last digest before the position, with any key: no record with that digest is
                // wanted.
                let (Some(before), Ok(key)) = (before, Key::new(&b"\xff"[..])) else {
                    return Ok(None);
                };
                let mut digest = [u8::MAX; DIGEST_LEN];
                digest[..8].copy_from_slice(&before.to_be_bytes());
                (Digest(digest), key)
            }
        };
        Ok(Some(Locator {
            digest,
            namespace: self.namespace,
            key,
        }))
    }

    /// The next records of a partition, from a quorum of its replicas.
    async fn of_quorum(
        &self,
        partition: Partition,
        after: Option<Locator>,
    ) -> Result<(Vec<Record>, Option<Locator>), Fault> {
        let registers = self.node.member.registers()?;
        let deadline = Instant::now() + DEFAULT_DEADLINE;
        let listed = registers.list(partition, after.as_ref().map(Locator::id), deadline);
        let listed = listed
            .await
            .map_err(|NoQuorum| advised(&self.node, partition))?;
        Ok((listed.records, listed.next))
    }

    /// The next records of a generation; every replica holds all of them.
    async fn of_generation(
        &self,
        partition: Partition,
        after: Option<Locator>,
    ) -> Result<(Vec<Record>, Option<Locator>), Fault> {
        let registers = self.node.member.registers()?;
        let page = registers.page_of_generation(partition, self.namespace, after);
        let page = page.await.map_err(|error| store_fault(&error))?;
        Ok((page.records, page.next))
    }
}

fn position_after(at: &Locator) -> ScanPosition {
    ScanPosition::After {
        digest: at.digest,
        key: at.key.clone(),
    }
}

fn silent() -> Fault {
    let message = "the node that leads the scan's next partition does not answer: try again";
    Fault::new(Reason::OwnerUnreachable, message)
}
