use std::sync::{Arc, Mutex};
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Vec<String>>>);
impl Ledger {
    pub(crate) fn new() -> Self {
        Self::default()
    }
    pub(crate) fn record(&self, k: &str) {
        self.0.lock().unwrap().push(k.into())
    }
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}
