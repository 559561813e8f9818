//! The `Replica` service: what nodes ask of one another.

mod copy;
mod pull;

pub(crate) use copy::{MAX_HAVE, MESSAGE_BYTES};
pub(crate) use pull::checksum as pull_checksum;

use std::sync::Arc;

use tonic::{Request, Response, Status, Streaming};
use torc_proto::v1;
use torc_proto::v1::replica_server::Replica;
use torc_proto::v1::{
    AcceptRequest, AcceptResponse, CopySlicesRequest, EnlistRequest, EnlistResponse, FenceRequest,
    FenceResponse, IdentifyRequest, IdentifyResponse, LinkRequest, PullRequest, SummarizeRequest,
    SummarizeResponse, VerifyRequest, VerifyResponse,
};
use torc_proto::{Fault, Reason, record_from_wire};
use torc_record::{Epoch, Layer, Record};
use torc_replication::Role;
use torc_ring::topology::{ClusterId, Incarnation};
use torc_ring::{NodeId, Partition, Token};

use crate::gate::stale;
use crate::identity::{IdentityError, Membership};
use crate::links::LinkStream;
use crate::peers::within;
use crate::shared::{Shared, deadline_of, store_fault};

/// Time that a newcomer has to sum up its copy while writes wait.
const VERIFY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);

/// The service. Cloning shares the node.
#[derive(Debug, Clone)]
pub(crate) struct ReplicaService {
    shared: Arc<Shared>,
}

impl ReplicaService {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

#[tonic::async_trait]
impl Replica for ReplicaService {
    type CopySlicesStream = copy::CopyStream;
    type LinkStream = LinkStream;
    type PullStream = pull::PullStream;

    async fn identify(
        &self,
        _request: Request<IdentifyRequest>,
    ) -> Result<Response<IdentifyResponse>, Status> {
        let shared = &self.shared;
        let membership = shared.identity.membership();
        let cluster = membership.map(|m| m.cluster.0.to_vec()).unwrap_or_default();
        Ok(Response::new(IdentifyResponse {
            incarnation: shared.identity.incarnation.0.to_vec().into(),
            cluster_id: cluster.into(),
            node: membership.map_or(0, |m| m.node.0),
            address: shared.address.clone(),
            http_address: shared.http_address.clone(),
            zone: shared.settings.zone.to_string(),
            weight: shared.settings.weight.percent(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            empty: shared.store.stats().records == 0,
            partitions: shared.settings.partitions.count(),
        }))
    }

    async fn enlist(
        &self,
        request: Request<EnlistRequest>,
    ) -> Result<Response<EnlistResponse>, Status> {
        let request = request.into_inner();
        enlist(&self.shared, &request).await?;
        Ok(Response::new(EnlistResponse {}))
    }

    async fn accept(
        &self,
        request: Request<AcceptRequest>,
    ) -> Result<Response<AcceptResponse>, Status> {
        let deadline = deadline_of(&request);
        let request = request.into_inner();
        let partition = Partition(request.partition);
        let epoch = Some(Epoch(request.epoch));
        let pass = self.shared.gates.enter(partition, epoch, deadline).await?;
        match pass.role {
            // A lead accepts what the other side of its move has and it has not.
            Role::Follower { .. }
            | Role::Lead {
                partner: Some(_), ..
            } => {}
            Role::Lead { partner: None, .. } | Role::Newcomer { .. } | Role::Outsider => {
                return Err(stale(partition, pass.epoch).into());
            }
        }
        let records = records_of(&self.shared, partition, request.records)?;
        let stored = self.shared.store.write_batch(records).await;
        stored.map_err(|error| store_fault(&error))?;
        Ok(Response::new(AcceptResponse {
            highest_time: self.shared.clock.last().0,
        }))
    }

    async fn copy_slices(
        &self,
        request: Request<CopySlicesRequest>,
    ) -> Result<Response<Self::CopySlicesStream>, Status> {
        let stream = copy::start(&self.shared, request.into_inner()).await?;
        Ok(Response::new(stream))
    }

    async fn pull(
        &self,
        request: Request<PullRequest>,
    ) -> Result<Response<Self::PullStream>, Status> {
        Ok(Response::new(pull::start(
            &self.shared,
            &request.into_inner(),
        )?))
    }

    async fn verify(
        &self,
        request: Request<VerifyRequest>,
    ) -> Result<Response<VerifyResponse>, Status> {
        let deadline = deadline_of(&request);
        let request = request.into_inner();
        let partition = Partition(request.partition);
        let epoch = Epoch(request.epoch);
        drop(
            self.shared
                .gates
                .enter(partition, Some(epoch), deadline)
                .await?,
        );
        Ok(Response::new(
            verify(&self.shared, partition, epoch, NodeId(request.newcomer)).await?,
        ))
    }

    async fn summarize(
        &self,
        request: Request<SummarizeRequest>,
    ) -> Result<Response<SummarizeResponse>, Status> {
        let asked = request.into_inner().partitions;
        let all = asked.is_empty();
        let partitions = self.shared.settings.partitions;
        let exists = |partition: &u32| partitions.contains(Partition(*partition));
        let most = partitions.count() as usize * Layer::COUNT;
        if asked.len() > most || !asked.iter().all(exists) {
            return Err(Fault::new(Reason::Invalid, "there is no such partition").into());
        }
        let partitions = if all {
            let held = self.shared.store.partitions().into_iter();
            held.map(|partition| partition.0).collect()
        } else {
            asked
        };
        let summaries = partitions
            .into_iter()
            .map(|p| summary(&self.shared, Partition(p)));
        let summaries = summaries
            .filter(|summary| !all || summary.records > 0)
            .collect();
        Ok(Response::new(SummarizeResponse { summaries }))
    }

    async fn fence(
        &self,
        request: Request<FenceRequest>,
    ) -> Result<Response<FenceResponse>, Status> {
        let deadline = deadline_of(&request);
        let request = request.into_inner();
        let epoch = Some(Epoch(request.epoch));
        match self
            .shared
            .gates
            .enter(Partition(request.partition), epoch, deadline)
            .await
        {
            Ok(pass) => drop(pass),
            // A later epoch than the one asked for is adopted: that fences as well.
            Err(fault) if fault.reason == Reason::StaleEpoch => {}
            Err(fault) => return Err(fault.into()),
        }
        Ok(Response::new(FenceResponse {}))
    }

    async fn link(
        &self,
        request: Request<Streaming<LinkRequest>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let service = self.shared.link_service.get().ok_or_else(|| {
            Fault::new(
                Reason::NotServing,
                "the node does not take part in replication yet",
            )
        })?;
        Ok(Response::new(service.accept(request.into_inner()).await?))
    }
}

/// Checks that records belong to the partition they were sent for.
pub(crate) fn records_of(
    shared: &Shared,
    partition: Partition,
    records: Vec<v1::Record>,
) -> Result<Vec<Record>, Fault> {
    let partitions = shared.settings.partitions;
    let check = |wire| {
        let record = record_from_wire(wire)?;
        if partitions.holding(record.namespace, Token::of(&record.digest)) != partition {
            return Err(Fault::new(Reason::Invalid, "a record of another partition"));
        }
        Ok(record)
    };
    records.into_iter().map(check).collect()
}

pub(crate) fn summary(shared: &Shared, partition: Partition) -> v1::PartitionSummary {
    let summary = shared.store.summary(partition);
    v1::PartitionSummary {
        partition: partition.0,
        records: summary.records,
        tombstones: summary.tombstones,
        payload_bytes: summary.payload_bytes,
        fingerprint: summary.fingerprint.to_be_bytes().to_vec().into(),
    }
}

async fn enlist(shared: &Arc<Shared>, request: &EnlistRequest) -> Result<(), Fault> {
    let misfit = |field| Fault::from(torc_proto::WireError::Field { field });
    let cluster =
        <[u8; 16]>::try_from(&request.cluster_id[..]).map_err(|_| misfit("cluster_id"))?;
    let incarnation =
        <[u8; 16]>::try_from(&request.incarnation[..]).map_err(|_| misfit("incarnation"))?;
    if Incarnation(incarnation) != shared.identity.incarnation {
        let message = "this is another data directory than the one that joined: a wiped node \
                       comes back as a new member";
        return Err(Fault::new(Reason::Refused, message));
    }
    let membership = Membership {
        cluster: ClusterId(cluster),
        node: NodeId(request.node),
    };
    shared
        .identity
        .enlist(&shared.store, membership)
        .map_err(|error| match error {
            IdentityError::Taken { .. } => Fault::new(Reason::Refused, error.to_string()),
            IdentityError::Store(error) => store_fault(&error),
            IdentityError::Malformed { .. } => Fault::new(Reason::Internal, error.to_string()),
        })?;
    shared
        .group
        .start(membership.node, membership.cluster)
        .await?;
    Ok(())
}

/// Compares our copy of a moving partition with the newcomer's while no write runs.
async fn verify(
    shared: &Shared,
    partition: Partition,
    epoch: Epoch,
    newcomer: NodeId,
) -> Result<VerifyResponse, Fault> {
    let held = shared.gates.close(partition).await?;
    let partner = match held.role {
        Role::Lead { partner, .. } if held.epoch == epoch => partner,
        _ => return Err(stale(partition, held.epoch)),
    };
    if partner != Some(newcomer) {
        return Err(Fault::new(
            Reason::Refused,
            "the partition is moving to another node",
        ));
    }
    let table = shared.routing()?;
    let address = table.address(newcomer).ok_or_else(|| {
        Fault::new(
            Reason::NoSuchNode,
            format!("node {newcomer} is not a member"),
        )
    })?;
    let request = SummarizeRequest {
        partitions: vec![partition.0],
    };
    let mut client = shared.peers.replica(address)?;
    let answer = client.summarize(within(VERIFY_TIMEOUT, request)).await;
    let answer = answer
        .map_err(|status| Fault::from_status(&status))?
        .into_inner();
    let theirs = answer.summaries.into_iter().next().unwrap_or_default();
    let ours = summary(shared, partition);
    drop(held);
    Ok(VerifyResponse {
        equal: ours == theirs,
        source: Some(ours),
        newcomer: Some(theirs),
    })
}
