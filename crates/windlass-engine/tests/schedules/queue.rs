//! A queue with many ends, as the pipeline's, on shuttle's locks: receivers see its end once the
//! last sender is gone and it is empty.

use std::collections::VecDeque;
use std::sync::Arc;

use shuttle::sync::{Condvar, Mutex};

struct QueueState<T> {
    waiting: VecDeque<T>,
    senders: usize,
    stopped: bool,
}

/// Both ends of a queue. Each thread has its own copy.
pub struct Queue<T>(Arc<(Mutex<QueueState<T>>, Condvar)>);

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Queue<T> {
    /// A queue that ends when `senders` threads have said that they are done.
    pub fn new(senders: usize) -> Self {
        let state = QueueState {
            waiting: VecDeque::new(),
            senders,
            stopped: false,
        };
        Self(Arc::new((Mutex::new(state), Condvar::new())))
    }

    pub fn send(&self, item: T) {
        let mut state = self.0.0.lock().unwrap();
        // As in a channel whose receivers are gone, the sender drops what it sends.
        if state.stopped {
            drop(state);
            drop(item);
            return;
        }
        state.waiting.push_back(item);
        self.0.1.notify_one();
    }

    pub fn receive(&self) -> Option<T> {
        let mut state = self.0.0.lock().unwrap();
        loop {
            match state.waiting.pop_front() {
                Some(item) => return Some(item),
                None if state.senders == 0 || state.stopped => return None,
                None => state = self.0.1.wait(state).unwrap(),
            }
        }
    }

    /// Notes that one sender has nothing more to send.
    pub fn done(&self) {
        self.0.0.lock().unwrap().senders -= 1;
        self.0.1.notify_all();
    }

    /// Notes that the receivers are gone. Nobody takes the items that wait.
    pub fn stop(&self) {
        let mut state = self.0.0.lock().unwrap();
        state.stopped = true;
        let left = std::mem::take(&mut state.waiting);
        drop(state);
        // The buffers go back to the pool, and that takes the pool's own lock.
        drop(left);
        self.0.1.notify_all();
    }
}
