//! Many tasks that make calls as fast as they can.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const TASKS: usize = 64;

/// Calls a second, by 64 tasks; `call` is given the number of the call.
pub(crate) async fn pace<F>(calls: usize, call: impl Fn(usize) -> F + Clone + Send + 'static) -> f64
where
    F: Future<Output = ()> + Send,
{
    let next = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (next, call) = (Arc::clone(&next), call.clone());
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= calls {
                        return;
                    }
                    call(number).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    calls as f64 / begun.elapsed().as_secs_f64()
}
