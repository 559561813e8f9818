//! Threads for work that no client waits for.

use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Threads of low priority: those that serve go first.
#[derive(Debug)]
pub struct Background {
    threads: Handle,
    /// Has no tasks, and so never runs itself.
    runtime: Option<Runtime>,
}

impl Background {
    /// At most this many threads, at least one. Each starts with work and ends after some seconds without any.
    ///
    /// # Errors
    /// The system provides no event queue.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .thread_name("torc-background")
            .max_blocking_threads(threads.max(1))
            .thread_keep_alive(KEEP_ALIVE)
            .on_thread_start(torc_store::lower_priority)
            .build()?;
        Ok(Self {
            threads: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }

    /// Runs work that may block once a thread is free.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.threads.spawn_blocking(work)
    }
}

/// Does not wait for work under way.
impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Barrier};

    use super::*;

    /// The nice value of the calling thread.
    fn nice() -> Option<i32> {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").ok()?;
        let (_, after_name) = stat.rsplit_once(')')?;
        after_name.split_whitespace().nth(16)?.parse().ok()
    }

    #[tokio::test]
    async fn work_runs_at_low_priority_on_as_many_threads_as_said_and_others_keep_theirs() {
        let background = Background::new(2).unwrap();
        let before = nice().unwrap();
        let (both, running) = (Barrier::new(2), AtomicUsize::new(0));
        let shared = Arc::new((both, running));
        let started = [(); 8].map(|()| {
            let shared = Arc::clone(&shared);
            background.run(move || {
                let (both, running) = &*shared;
                let together = running.fetch_add(1, Ordering::SeqCst) + 1;
                // Returns once two threads are here.
                both.wait();
                running.fetch_sub(1, Ordering::SeqCst);
                (together, nice())
            })
        });
        for one in started {
            let (together, nice) = one.await.unwrap();
            assert!(together <= 2, "{together} threads");
            assert_eq!(nice, Some((before + 10).min(19)));
        }
        assert_eq!(nice(), Some(before));
        // On the thread of a runtime, where waiting for it would panic.
        drop(background);
    }
}
