//! The scratch store may be lost, but nothing else with it.

#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::path::{Path, PathBuf};

use crate::common::{block_on, get, options, put};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use torc_store::testing::WaitingStore;
use torc_store::{Scratch, Store};

const TREE: &str = "cursors";

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Flips bits of a file in the directory, or overwrites, truncates, extends or removes it.
fn damage(dir: &Path, dice: &mut StdRng) {
    let files = files(dir);
    let path = &files[dice.random_range(0..files.len())];
    let mut bytes = std::fs::read(path).unwrap();
    // Most of the file is reserved; the used part is at its start.
    let used = bytes.len().min(8192);
    match dice.random_range(0..5) {
        0 if used > 0 => {
            for _ in 0..dice.random_range(1..20) {
                bytes[dice.random_range(0..used)] ^= 1 << dice.random_range(0..8);
            }
        }
        1 if used > 0 => {
            let from = dice.random_range(0..used);
            let to = bytes.len().min(from + 600);
            dice.fill(&mut bytes[from..to]);
        }
        2 => bytes.truncate(dice.random_range(0..=used)),
        3 => {
            std::fs::remove_file(path).unwrap();
            return;
        }
        _ => bytes.extend(std::iter::repeat_with(|| dice.random::<u8>()).take(700)),
    }
    std::fs::write(path, bytes).unwrap();
}

fn set_aside(root: &Path) -> usize {
    let names = std::fs::read_dir(root).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name.to_string_lossy().contains(".broken-"))
        .count()
}

#[tokio::test]
async fn what_was_put_is_read_listed_deleted_and_outlives_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("scratch");
    let scratch = Scratch::open(&dir);
    assert_eq!(scratch.list(TREE).await, []);
    scratch.put(TREE, b"b", b"2").await;
    scratch.put(TREE, b"a", b"1").await;
    scratch.put(TREE, b"c", b"3").await;
    scratch.put("other", b"a", b"x").await;
    scratch.delete(TREE, b"b").await;
    let pairs = vec![
        (b"a".to_vec(), b"1".to_vec()),
        (b"c".to_vec(), b"3".to_vec()),
    ];
    assert_eq!(scratch.list(TREE).await, pairs);
    let clone = scratch.clone();
    scratch.close().await;
    assert_eq!(clone.get(TREE, b"a").await, None, "closed for all");

    let scratch = Scratch::open(&dir);
    assert_eq!(scratch.get(TREE, b"c").await.as_deref(), Some(&b"3"[..]));
    assert_eq!(scratch.get(TREE, b"b").await, None);
    assert_eq!(scratch.list(TREE).await, pairs);
    assert_eq!(scratch.losses(), 0);
}

/// Runs `TORC_DAMAGE_ROUNDS` rounds, 40 by default.
#[test]
fn random_damage_costs_the_scratch_store_at_most_and_never_a_record() {
    let rounds = std::env::var("TORC_DAMAGE_ROUNDS").map_or(40, |rounds| rounds.parse().unwrap());
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("scratch");
    let (store, _) = Store::open(options(root.path().join("store"))).unwrap();
    let mut dice = StdRng::seed_from_u64(1);
    let mut losses = 0;
    block_on(async {
        for round in 0..rounds {
            let scratch = Scratch::open(&dir);
            for key in 0..100_u32 {
                let value = vec![7; dice.random_range(0..60)];
                scratch.put(TREE, &key.to_le_bytes(), &value).await;
            }
            store.write(put(round, 1, b"kept")).await.unwrap();
            scratch.write_out().await;
            // Damage may be detected late and cost the last values, but later ones are stored.
            scratch.list(TREE).await;
            scratch.put(TREE, b"last", b"value").await;
            let last = scratch.get(TREE, b"last").await;
            assert_eq!(last.as_deref(), Some(&b"value"[..]), "round {round}");
            losses += scratch.losses();
            scratch.close().await;
            damage(&dir, &mut dice);
        }
    });
    assert!(
        losses > rounds / 10,
        "only {losses} losses: the damage is too mild"
    );
    assert!(
        (1..=3).contains(&set_aside(root.path())),
        "a few are kept for a look"
    );
    block_on(store.close()).unwrap();
    let (store, recovery) = Store::open(options(root.path().join("store"))).unwrap();
    assert_eq!(recovery.records, rounds);
    for key in 0..rounds {
        assert!(get(&store, key).unwrap().is_some());
    }
}

#[tokio::test]
async fn a_directory_in_use_is_left_to_its_owner() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("scratch");
    let owner = Scratch::open(&dir);
    owner.put(TREE, b"a", b"1").await;
    let second = Scratch::open(&dir);
    second.put(TREE, b"a", b"2").await;
    assert_eq!(second.get(TREE, b"a").await.as_deref(), Some(&b"2"[..]));
    assert_eq!(second.losses(), 1);
    assert_eq!(owner.get(TREE, b"a").await.as_deref(), Some(&b"1"[..]));
    assert_eq!(set_aside(root.path()), 0);
}

#[tokio::test]
async fn where_no_directory_can_be_had_it_is_kept_in_memory() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    std::fs::write(&file, b"not a directory").unwrap();
    let scratch = Scratch::open(file.join("scratch"));
    scratch.put(TREE, b"a", b"1").await;
    scratch.put(TREE, b"b", b"2").await;
    scratch.delete(TREE, b"a").await;
    assert_eq!(
        scratch.list(TREE).await,
        vec![(b"b".to_vec(), b"2".to_vec())]
    );
    assert_eq!(scratch.losses(), 1);
    scratch.write_out().await;
    scratch.close().await;
}
