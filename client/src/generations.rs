//! The client's operations on generations of static namespaces.

use torc_proto::v1::change_generation_request::Change;
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::v1::{self, ChangeGenerationResponse};

use crate::call::request;
use crate::retry::Nature;
use crate::{Client, Error, Generation, GenerationContent, Reservation};

/// Generations of static namespaces.
impl Client {
    /// Reserves a generation of a static namespace, to be built. When the answer is lost and asked for
    /// again, one more is reserved: drop it.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchNamespace`](crate::ErrorKind::NoSuchNamespace);
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if it is not static; and as [`Client::status`].
    pub async fn reserve_generation(
        &self,
        namespace: impl Into<String>,
    ) -> Result<Reservation, Error> {
        let namespace = namespace.into();
        let change = Change::Reserve(v1::ReserveGeneration { namespace });
        let answer = self.change_generation(change).await?;
        Reservation::from_wire(answer).map_err(|error| Error::malformed(error, true))
    }

    /// Says what a reserved generation is, or attaches a rolled-back one anew: nodes fetch its slices
    /// from `content.source` and from each other. Asking again is harmless.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if no such generation is reserved, or it was
    /// attached with other content; [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for a source that
    /// nodes cannot read; and as [`Client::status`].
    pub async fn attach_generation(
        &self,
        number: u32,
        content: &GenerationContent,
    ) -> Result<Generation, Error> {
        let partitions = self.topology().await?.partitions;
        self.change(Change::Attach(content.to_wire(number, partitions)))
            .await
    }

    /// Makes an attached generation the current one of its namespace. It is from the moment this is
    /// committed; when [`Generation::unheard`] of the answer is empty, no get that begins later is answered
    /// from an older one. If some member has not said so within the deadline, it is named: ask again.
    /// With `force` nobody is waited for longer than two seconds, and a member that was not reached may
    /// answer from the older one until it hears of this. Asking again is harmless.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) while a member does not hold all of it that it is
    /// to hold, or if it is not attached; and as [`Client::status`].
    pub async fn promote(&self, number: u32, force: bool) -> Result<Generation, Error> {
        let change = Change::Promote(v1::PromoteGeneration { number, force });
        self.change(change).await
    }

    /// Makes the generation before the current one of a namespace current again, as
    /// [`Client::promote`] does; gives that one. Asking again goes back one more.
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
        // What was done must not be done twice.
        let answer = self.send_change(change, Nature::Write).await?;
        Generation::from_wire(answer.generation).map_err(|error| Error::malformed(error, true))
    }

    /// Drops a generation that is not current: nodes delete their slices of it.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if it is current, or some member may still
    /// answer from an older one; and as [`Client::status`].
    pub async fn drop_generation(&self, number: u32) -> Result<(), Error> {
        let change = Change::Drop(v1::DropGeneration { number });
        self.change_generation(change).await.map(drop)
    }

    /// The generations of all static namespaces, or of one, in the order of their numbers.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub async fn generations(&self, namespace: Option<&str>) -> Result<Vec<Generation>, Error> {
        let namespace = namespace.unwrap_or_default();
        let sending = |channel, budget| {
            let message = v1::ListGenerationsRequest {
                namespace: namespace.to_owned(),
            };
            async move {
                ClusterClient::new(channel)
                    .list_generations(request(message, budget))
                    .await
            }
        };
        let answer = self.call(Nature::Read).on_any(sending).await?;
        let all = answer.generations.into_iter();
        let all: Result<Vec<_>, _> = all.map(|it| Generation::from_wire(Some(it))).collect();
        all.map_err(|error| Error::malformed(error, false))
    }

    async fn change(&self, change: Change) -> Result<Generation, Error> {
        let answer = self.change_generation(change).await?;
        Generation::from_wire(answer.generation).map_err(|error| Error::malformed(error, true))
    }

    async fn change_generation(&self, change: Change) -> Result<ChangeGenerationResponse, Error> {
        self.send_change(change, Nature::Read).await
    }

    async fn send_change(
        &self,
        change: Change,
        nature: Nature,
    ) -> Result<ChangeGenerationResponse, Error> {
        let sending = |channel, budget| {
            let message = v1::ChangeGenerationRequest {
                change: Some(change.clone()),
            };
            async move {
                ClusterClient::new(channel)
                    .change_generation(request(message, budget))
                    .await
            }
        };
        self.call(nature).on_any(sending).await
    }
}
