//! The client's operations on generations of static namespaces.

use bytes::Bytes;
use torc_proto::v1::change_generation_request::Change;
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::{self, ChangeGenerationResponse};
use torc_proto::version_from_wire;
use torc_record::GenerationDigests;

use crate::peer::attempt::request;
use crate::retry::Nature;
use crate::{
    Client, Epoch, Error, Generation, GenerationContent, NamespaceMode, Reservation, Version,
};

/// Generations of static namespaces.
impl Client {
    /// Reserves a generation of a static namespace, to build it. If the answer is lost, the
    /// library's retry reserves another one: drop the first.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchNamespace`](crate::ErrorKind::NoSuchNamespace);
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if it is not static; and as [`Client::status`].
    pub async fn reserve_generation(
        &self,
        namespace: impl Into<String>,
    ) -> Result<Reservation, Error> {
        self.reserve(v1::ReserveGeneration {
            namespace: namespace.into(),
            ..v1::ReserveGeneration::default()
        })
        .await
    }

    /// As [`reserve_generation`](Self::reserve_generation), to restore a generation without its keys: the digests
    /// of keys, and so the content, are those of another generation, of any cluster.
    ///
    /// # Errors
    /// As [`reserve_generation`](Self::reserve_generation);
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if another generation of the namespace has these digests.
    pub async fn reserve_restored(
        &self,
        namespace: impl Into<String>,
        digests: GenerationDigests,
    ) -> Result<Reservation, Error> {
        self.reserve(v1::ReserveGeneration {
            namespace: namespace.into(),
            digest_key: digests.key.0.to_vec().into(),
            digest_id: digests.id.0,
            ..v1::ReserveGeneration::default()
        })
        .await
    }

    async fn reserve(&self, asked: v1::ReserveGeneration) -> Result<Reservation, Error> {
        let answer = self.change_generation(Change::Reserve(asked)).await?;
        Reservation::from_wire(answer).map_err(|error| Error::malformed(error, true))
    }

    /// Reserves a merge into a linearizable namespace. Puts with
    /// [`Condition::IfOlderThan`](crate::Condition::IfOlderThan)`(version)`, where `version` is the
    /// [`Generation::version`] of the answer, replace what was written before the reservation, and
    /// nothing that is written after it. The reservation is complete once no member is
    /// [`Generation::unconfirmed`]: ask [`Client::generations`], which also shows a reservation whose
    /// answer was lost. Until you drop it, the cluster keeps deleted and expired keys of the
    /// namespace.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchNamespace`](crate::ErrorKind::NoSuchNamespace);
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if it is not linearizable, or while
    /// partitions move; and as [`Client::status`].
    pub async fn reserve_merge(&self, namespace: impl Into<String>) -> Result<Generation, Error> {
        let change = Change::Reserve(v1::ReserveGeneration {
            namespace: namespace.into(),
            merge: true,
            ..v1::ReserveGeneration::default()
        });
        // Each one holds up collection until it is dropped.
        let answer = self.send_change(change, Nature::Write).await?;
        Generation::from_wire(answer.generation).map_err(|error| Error::malformed(error, true))
    }

    /// Reserves a namespace that is created with its first records, to build these like a generation. Its
    /// [`Generation`] is attached and promoted as others: attaching is refused while partitions move, these do not
    /// move until the promotion, and the promotion gives the namespace its name. Drop the generation after that; if
    /// you drop it earlier, the namespace is dropped with it. The records have versions above every ballot of the
    /// epoch `above`: use [`Client::raise_epoch`] before the promotion. With `replaces`, a namespace of the same name
    /// is dropped by the promotion, with all that was written until then.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if the namespace exists and may not be replaced, if another
    /// generation will create it, or as [`Client::create_namespace`];
    /// [`ErrorKind::OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if the answer is lost, see
    /// [`Client::generations`]; and as [`Client::status`].
    pub async fn reserve_namespace(
        &self,
        name: impl Into<String>,
        (mode, replicas): (NamespaceMode, Option<u32>),
        above: Epoch,
        replaces: bool,
    ) -> Result<Reservation, Error> {
        let namespace = v1::CreateNamespaceRequest {
            name: name.into(),
            mode: v1::NamespaceMode::from(mode).into(),
            replicas: replicas.unwrap_or(0),
        };
        let change = Change::ReserveNamespace(v1::ReserveNamespace {
            namespace: Some(namespace),
            above: above.0,
            replaces,
        });
        let answer = self.send_change(change, Nature::Write).await?;
        Reservation::from_wire(answer).map_err(|error| Error::malformed(error, true))
    }

    /// Attaches the content of a reserved generation, or attaches a rolled-back one again: nodes
    /// fetch its slices from `content.source` and from each other. Repeating it is harmless.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if the generation is not reserved, or was
    /// attached with other content; [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for a source
    /// that nodes cannot read; and as [`Client::status`].
    pub async fn attach_generation(
        &self,
        number: u32,
        content: &GenerationContent,
    ) -> Result<Generation, Error> {
        let partitions = self.topology().await?.partitions;
        self.change(Change::Attach(content.to_wire(number, partitions)))
            .await
    }

    /// Makes an attached generation the current one of its namespace, or creates the namespace with it
    /// ([`Generation::creates`]). If [`Generation::unconfirmed`] of
    /// the answer is empty, no later get is answered from an older generation. Otherwise it names
    /// the members that have not confirmed the switch within the deadline: repeat the call. With
    /// `force`, this waits for at most two seconds, and an unreachable member may serve the older
    /// generation until it learns of the switch. Repeating it is harmless.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) while a member lacks a part of its share,
    /// or if the generation is not attached; and as [`Client::status`].
    pub async fn promote(&self, number: u32, force: bool) -> Result<Generation, Error> {
        let change = Change::Promote(v1::PromoteGeneration { number, force });
        self.change(change).await
    }

    /// Makes the previous generation of a namespace current again, as
    /// [`Client::promote`] does, and returns it. Repeating it goes back one more.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if there is none; and as [`Client::status`].
    pub async fn roll_back(
        &self,
        namespace: impl Into<String>,
        force: bool,
    ) -> Result<Generation, Error> {
        let namespace = namespace.into();
        let change = Change::RollBack(v1::RollBackGeneration { namespace, force });
        // A rollback must not be applied twice.
        let answer = self.send_change(change, Nature::Write).await?;
        Generation::from_wire(answer.generation).map_err(|error| Error::malformed(error, true))
    }

    /// Drops a generation that is not current, so nodes delete their slices of it; or ends a merge. One that
    /// creates a namespace drops it, unless it was promoted: then it only goes from the list.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if it is current, or while a member may
    /// still serve an older one; [`ErrorKind::OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if the
    /// answer is lost; and as [`Client::status`].
    pub async fn drop_generation(&self, number: u32) -> Result<(), Error> {
        let change = Change::Drop(v1::DropGeneration { number });
        // Not retried after a lost answer: the second drop would fail, because the generation is gone.
        self.send_change(change, Nature::Write).await.map(drop)
    }

    /// The generations of all static namespaces, or of one, in the order of their numbers.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub async fn generations(&self, namespace: Option<&str>) -> Result<Vec<Generation>, Error> {
        let namespace = namespace.unwrap_or_default();
        let message = v1::ListGenerationsRequest {
            namespace: namespace.to_owned(),
        };
        let answer = self
            .ask(Nature::Read, message, ClusterClient::list_generations)
            .await?;
        let all = answer.generations.into_iter();
        let all: Result<Vec<_>, _> = all.map(|it| Generation::from_wire(Some(it))).collect();
        all.map_err(|error| Error::malformed(error, false))
    }

    /// The key with an id, in a static namespace that numbers its keys
    /// ([`GenerationShape::Ids`](crate::GenerationShape::Ids)), with the version of the generation.
    /// `None` if the current generation has no such id. Ids are stable within a generation.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the keys of the namespace have no ids;
    /// and as [`Client::get`].
    pub async fn key_of(&self, id: u64) -> Result<Option<(Bytes, Version)>, Error> {
        let sending = |channel, budget| {
            let message = v1::GetKeyRequest {
                namespace: self.namespace_name(),
                id,
                ..v1::GetKeyRequest::default()
            };
            async move {
                KvClient::new(channel)
                    .get_key(request(message, budget))
                    .await
            }
        };
        let answer = self.call(Nature::Read).on_any(sending).await?;
        if !answer.found {
            return Ok(None);
        }
        let malformed = |error| Error::malformed(error, false);
        let version = answer.version.unwrap_or_default();
        let version = version_from_wire(&version).map_err(malformed)?;
        Ok(Some((answer.key, version)))
    }

    async fn change(&self, change: Change) -> Result<Generation, Error> {
        let answer = self.change_generation(change).await?;
        Generation::from_wire(answer.generation).map_err(|error| Error::malformed(error, true))
    }

    async fn change_generation(&self, change: Change) -> Result<ChangeGenerationResponse, Error> {
        self.send_change(change, Nature::Repeatable).await
    }

    async fn send_change(
        &self,
        change: Change,
        nature: Nature,
    ) -> Result<ChangeGenerationResponse, Error> {
        let message = v1::ChangeGenerationRequest {
            change: Some(change),
        };
        self.ask(nature, message, ClusterClient::change_generation)
            .await
    }
}
