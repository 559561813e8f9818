//! The node's place in the cluster: getting one, and giving it up.
//!
//! Both look at what is, take the next step and look again. So both can be begun anew at any time, and go on after a kill.

use std::time::Duration;

use torc_client::{Client, ClusterStatus, GoOptions, MemberState, NodeStatus};

use crate::cli::Global;
use crate::failure::{Code, Failure};
use crate::out::note;

const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Most nodes that are tried. One that answers is enough.
const MOST_PEERS: u32 = 16;
/// A refusal may be about a change that has just ended. One that comes this often in a row is final.
const REFUSALS: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Member,
    /// It was told to go, and killed before it was gone.
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

    /// How others reach the gRPC of the pod of this number.
    pub(super) fn address(&self, number: u32) -> String {
        self.peers.replace("{}", &number.to_string())
    }

    pub(super) fn own(&self) -> String {
        self.address(self.number)
    }

    /// Gets the node into the cluster, and waits until it has its share. One that `was_leaving` may be gone already.
    pub(super) async fn join(&self, was_leaving: bool) -> Place {
        let mut said = Said::default();
        loop {
            let own = self.ask(vec![self.own()]).await.ok();
            let own = own.as_ref().and_then(|status| self.own_entry(status));
            match own.map(|own| own.member.state) {
                Some(MemberState::Active) => return Place::Member,
                Some(MemberState::Leaving) => return Place::Leaving,
                Some(MemberState::Joining) => said.say("joining the cluster"),
                None if was_leaving && self.is_gone().await => return Place::Leaving,
                // A founder is a member once the cluster is founded. Until then nobody can let it in.
                None => match self.ask_to_join().await {
                    Ok(()) => said.say("the cluster lets this node join"),
                    Err(failure) => said.say(&format!("not in the cluster yet: {failure}")),
                },
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn is_gone(&self) -> bool {
        let status = self.ask(self.others()).await;
        status.is_ok_and(|status| self.own_entry(&status).is_none())
    }

    async fn ask_to_join(&self) -> Result<(), Failure> {
        let client = self.client(self.others())?;
        client.join(self.own(), None).await?;
        Ok(())
    }

    /// Gets the node out of the cluster, and waits until everything has moved off it.
    ///
    /// # Errors
    /// What the cluster refuses for good: then the node keeps its place.
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

    /// How far it is; none once the node is no member.
    async fn step_out(&self) -> Result<Option<String>, Failure> {
        let client = self.client(self.others())?;
        let status = client.status().await?;
        let Some(own) = self.own_entry(&status) else {
            // Whoever answered may not have heard yet that this node was let in.
            let own = self.ask(vec![self.own()]).await;
            let knows_more =
                own.is_ok_and(|own| own.epoch > status.epoch && self.own_entry(&own).is_some());
            return Ok(knows_more.then(|| "the others do not know this node yet".to_owned()));
        };
        if let Some(running) = &status.transition {
            return Ok(Some(format!(
                "waiting for transition {}: it has moved {} of {} partitions",
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

    /// Pods that go before this one are scaled down after it.
    fn others(&self) -> Vec<String> {
        let others = 0..self.number.max(self.founders).min(MOST_PEERS);
        let others = others.filter(|it| *it != self.number);
        others.map(|it| self.address(it)).collect()
    }

    async fn ask(&self, endpoints: Vec<String>) -> Result<ClusterStatus, Failure> {
        Ok(self.client(endpoints)?.status().await?)
    }

    /// Made anew for each question: what it shows and trusts is there only once the node has started.
    fn client(&self, endpoints: Vec<String>) -> Result<Client, Failure> {
        self.global.client_at(endpoints)
    }
}

/// Says each thing once.
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
