//! Joins and leaves the cluster.
//!
//! Both read the status, take the next step and read it again. So both can be repeated at any time,
//! and continue after a kill.

use std::time::Duration;

use torc_client::{Client, ClusterStatus, GoOptions, MemberState, NodeStatus};

use crate::failure::{Code, Failure};
use crate::global::Global;
use crate::out::note;

const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Time limit for the pod's own node, which does not know its place until it is a member.
const OWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Most nodes to try. One answer is enough.
const MOST_PEERS: u32 = 16;
/// A refusal may concern a change that has just ended. After this many in a row, it is final.
const REFUSALS: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Member,
    /// It was killed while it was leaving.
    Leaving,
}

pub(super) struct Membership<'a> {
    global: &'a Global,
    peers: &'a str,
    number: u32,
    founders: u32,
}

impl<'a> Membership<'a> {
    pub(super) const fn new(
        global: &'a Global,
        peers: &'a str,
        number: u32,
        founders: u32,
    ) -> Self {
        Self {
            global,
            peers,
            number,
            founders,
        }
    }

    /// The gRPC address of pod `number`.
    pub(super) fn address(&self, number: u32) -> String {
        self.peers.replace("{}", &number.to_string())
    }

    pub(super) fn own(&self) -> String {
        self.address(self.number)
    }

    /// Joins the cluster and waits until the node has its share. A node that `was_leaving` may
    /// already have left.
    pub(super) async fn join(&self, was_leaving: bool) -> Place {
        let mut said = Said::default();
        loop {
            let own = self.ask_own(was_leaving).await.ok();
            let own = own.as_ref().and_then(|status| self.own_entry(status));
            match own.map(|own| own.member.state) {
                Some(MemberState::Active) => return Place::Member,
                Some(MemberState::Leaving) => return Place::Leaving,
                Some(MemberState::Joining) => said.say("joining the cluster"),
                None if was_leaving => {
                    if self.is_gone().await {
                        return Place::Leaving;
                    }
                    said.say("not known yet whether the node has left the cluster");
                }
                // A founder becomes a member when the cluster is founded. Until then, there is no
                // cluster to join.
                None => match self.ask_to_join().await {
                    Ok(()) => said.say("the cluster has accepted this node"),
                    Err(failure) => said.say(&format!("not in the cluster yet: {failure}")),
                },
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn is_gone(&self) -> bool {
        let Ok(client) = self.client(self.others()) else {
            return false;
        };
        let status = client.current_status().await;
        status.is_ok_and(|status| self.own_entry(&status).is_none())
    }

    async fn ask_to_join(&self) -> Result<(), Failure> {
        let client = self.client(self.others())?;
        client.join(self.own(), None).await?;
        Ok(())
    }

    /// Leaves the cluster and waits until everything has moved off the node.
    ///
    /// # Errors
    /// When the cluster refuses for good; the node then keeps its place.
    pub(super) async fn leave(&self) -> Result<(), Failure> {
        let (mut said, mut refusals) = (Said::default(), 0);
        loop {
            match self.step_out().await {
                Ok(None) => {
                    note("the node has left the cluster");
                    return Ok(());
                }
                Ok(Some(progress)) => {
                    refusals = 0;
                    said.say(&progress);
                }
                Err(failure) => {
                    refusals = if failure.code() == Code::Refused {
                        refusals + 1
                    } else {
                        0
                    };
                    if refusals == REFUSALS {
                        return Err(failure);
                    }
                    said.say(&failure.to_string());
                }
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The progress; `None` once the node is not a member.
    async fn step_out(&self) -> Result<Option<String>, Failure> {
        let client = self.client(self.others())?;
        let status = client.current_status().await?;
        let Some(own) = self.own_entry(&status) else {
            return Ok(None);
        };
        if let Some(running) = &status.transition {
            return Ok(Some(format!(
                "waiting for transition {}: {} of {} partitions have moved",
                running.id, running.partitions_done, running.partitions_total
            )));
        }
        client
            .leave_with(own.member.id, GoOptions::default())
            .await?;
        Ok(Some("the node is leaving the cluster".to_owned()))
    }

    fn own_entry<'s>(&self, status: &'s ClusterStatus) -> Option<&'s NodeStatus> {
        let own = self.own();
        status.nodes.iter().find(|it| it.member.address == own)
    }

    /// The other pods. Those with lower numbers are scaled down after this one.
    fn others(&self) -> Vec<String> {
        let others = 0..self.number.max(self.founders).min(MOST_PEERS);
        let others = others.filter(|it| *it != self.number);
        others.map(|it| self.address(it)).collect()
    }

    /// A node that has just started may not know yet that it leaves or has left, so one that
    /// `was_leaving` must learn first what is committed.
    async fn ask_own(&self, was_leaving: bool) -> Result<ClusterStatus, Failure> {
        let client = self.client(vec![self.own()])?;
        let client = client.with_deadline(OWN_TIMEOUT);
        Ok(if was_leaving {
            client.current_status().await?
        } else {
            client.status().await?
        })
    }

    /// A new client per request: its certificates exist only once the node has started.
    fn client(&self, endpoints: Vec<String>) -> Result<Client, Failure> {
        self.global.client_at(endpoints)
    }
}

/// Prints each message once.
#[derive(Default)]
struct Said(String);

impl Said {
    fn say(&mut self, text: &str) {
        if self.0 != text {
            note(text);
            text.clone_into(&mut self.0);
        }
    }
}
