//! Full disks of running nodes: in-memory file systems, which only root may mount.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Servers, timed, until};
use torc_proto::v1::{GetRequest, PutRequest, StatusRequest};
use torc_proto::{Fault, Reason};

/// Length of a value: a few fill a segment of the log.
const VALUE_LEN: usize = 64 << 10;

/// A small file system, unmounted on drop.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64m", "torc-test"]);
        let done = mount.arg(at).output().map_err(|error| error.to_string())?;
        if done.status.success() {
            return Ok(Self(at.to_owned()));
        }
        Err(String::from_utf8_lossy(&done.stderr).trim().to_owned())
    }

    /// Fills the remaining space.
    fn fill(&self) {
        let ballast = File::options()
            .create(true)
            .append(true)
            .open(self.ballast());
        let mut ballast = ballast.unwrap();
        let mut chunk = &[0_u8; 16 << 10][..];
        while !chunk.is_empty() {
            match ballast.write(chunk) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => {
                    chunk = &chunk[..chunk.len() / 2];
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

impl Servers {
    /// Puts a value under this number through a node.
    async fn put(&self, index: usize, number: u32) -> Result<(), Fault> {
        let request = PutRequest {
            key: number.to_be_bytes().to_vec().into(),
            value: vec![7; VALUE_LEN].into(),
            ..PutRequest::default()
        };
        let done = self.kv(index).await.put(timed(request)).await;
        done.map(drop).map_err(|status| Fault::from_status(&status))
    }

    async fn holds(&self, index: usize, number: u32) -> bool {
        let request = GetRequest {
            key: number.to_be_bytes().to_vec().into(),
            ..GetRequest::default()
        };
        let mut found = None;
        until("a get is answered", async || {
            match self.kv(index).await.get(request.clone()).await {
                Ok(answer) => found = Some(answer.into_inner().found),
                // On a busy machine a replica answers late, and a second round needs space.
                Err(status) => {
                    let fault = Fault::from_status(&status);
                    let (reason, changed) = (fault.reason, fault.maybe_applied);
                    assert!(reason == Reason::OutOfSpace && !changed, "{fault:?}");
                }
            }
            found.is_some()
        })
        .await;
        found.unwrap()
    }

    /// The nodes with full disks, according to the last node.
    async fn full(&self) -> Vec<bool> {
        let mut cluster = self.cluster(2).await;
        let status = cluster.status(StatusRequest::default()).await;
        let nodes = status.unwrap().into_inner().nodes;
        nodes.iter().map(|node| node.disk_full).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_full_disk_of_three_fails_no_put_and_two_are_told_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let mount = |number: u32| SmallDisk::mount(&dir.path().join(number.to_string()));
    let disks: Vec<_> = match (1..=3).map(mount).collect() {
        Ok(disks) => disks,
        Err(why) => return eprintln!("skipped: no small file system can be mounted: {why}"),
    };
    let servers = Servers::start_in(dir, Some(1)).await;
    let mut number = 0;
    let mut next = || {
        number += 1;
        number
    };
    until("the first put is acknowledged", async || {
        servers.put(2, 0).await.is_ok()
    })
    .await;

    let mut stored = Vec::new();
    until("the first node is full", async || {
        disks[0].fill();
        let number = next();
        match servers.put(2, number).await {
            Ok(()) => stored.push(number),
            // A slow machine, or the topology group is electing another leader.
            Err(fault) => assert!(fault.reason != Reason::OutOfSpace, "{fault:?}"),
        }
        servers.full().await == [true, false, false]
    })
    .await;
    for _ in 0..20 {
        let number = next();
        until("a put goes on without the full node", async || {
            servers.put(2, number).await.is_ok()
        })
        .await;
        stored.push(number);
    }

    let mut refused = Vec::new();
    until("puts are refused for want of space", async || {
        disks[0].fill();
        disks[1].fill();
        let number = next();
        match servers.put(2, number).await {
            Ok(()) => stored.push(number),
            Err(fault) if fault.reason == Reason::OutOfSpace => {
                assert!(!fault.maybe_applied, "{fault:?}");
                assert!(fault.message.contains("nothing was changed"), "{fault:?}");
                refused.push(number);
            }
            // Sent before the node knew that its disk was full.
            Err(_) => {}
        }
        refused.len() >= 5
    })
    .await;
    assert_eq!(servers.full().await, [true, true, false]);
    for number in &stored {
        assert!(servers.holds(2, *number).await, "gets go on");
    }

    disks[0].free();
    disks[1].free();
    until("puts go on where there is space again", async || {
        let number = next();
        servers.put(2, number).await.is_ok() && servers.full().await == [false; 3]
    })
    .await;
    for number in refused {
        assert!(
            !servers.holds(2, number).await,
            "what was refused is not there"
        );
    }
    for number in stored {
        assert!(servers.holds(2, number).await, "what was acknowledged is");
    }
}
