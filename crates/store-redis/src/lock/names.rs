//! The names of locks, fences and counters: a tag in braces lets a Cluster place a lock and the fence of its shard together.

use onlyonce_core::lock::LockName;
use onlyonce_core::{Owner, RecordId};

/// How the names of some locks begin.
#[derive(Debug, Clone)]
pub(super) struct Names {
    prefix: String,
    channel: String,
}

/// The shard of a lock: its fence is counted with those of the same shard, and who waits is woken with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shard(u8);

impl Shard {
    pub(super) fn of(name: &LockName) -> Self {
        // FNV-1a: names are the program's own, so that spreading is all that counts.
        let hash = name.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self((hash >> 56) as u8 ^ hash as u8)
    }

    pub(super) fn tag(self) -> [u8; 2] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        [DIGITS[usize::from(self.0 >> 4)], DIGITS[usize::from(self.0 & 15)]]
    }

    /// What stands for the shard where changes are heard of.
    pub(super) fn id(self) -> RecordId {
        RecordId::from_bytes([self.0; 32])
    }
}

impl Names {
    pub(super) fn new(prefix: &str, channel: String) -> Self {
        Self { prefix: prefix.to_owned(), channel }
    }

    /// The channel on which releases are told to who waits.
    pub(super) fn channel(&self) -> &str {
        &self.channel
    }

    pub(super) fn lock(&self, name: &LockName) -> String {
        self.tagged("lock:{", Shard::of(name), name.as_str())
    }

    pub(super) fn fence(&self, name: &LockName) -> String {
        self.tagged("fence:{", Shard::of(name), "")
    }

    pub(super) fn counter(&self, name: &LockName) -> String {
        self.tagged("count:{", Shard::of(name), name.as_str())
    }

    fn tagged(&self, kind: &str, shard: Shard, rest: &str) -> String {
        let mut text = String::with_capacity(self.prefix.len() + kind.len() + 3 + rest.len());
        text.push_str(&self.prefix);
        text.push_str(kind);
        text.extend(shard.tag().map(char::from));
        text.push('}');
        text.push_str(rest);
        text
    }
}

/// The value of a lock: the nonce of its owner, in hex, so that a person can read it.
pub(super) fn value(owner: &Owner) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut value = [0; 32];
    for (pair, byte) in value.chunks_exact_mut(2).zip(owner.as_bytes()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_and_its_fence_are_in_one_slot_and_readable() {
        let names = Names::new("app:", "app:changed".into());
        let name = LockName::new("order:{42}").unwrap();
        let tag = String::from_utf8(Shard::of(&name).tag().to_vec()).unwrap();
        assert_eq!(names.lock(&name), format!("app:lock:{{{tag}}}order:{{42}}"));
        assert_eq!(names.fence(&name), format!("app:fence:{{{tag}}}"));
    }

    #[test]
    fn names_spread_over_the_shards() {
        let shards: std::collections::BTreeSet<_> =
            (0..10_000).map(|n| Shard::of(&LockName::new(format!("order:{n}")).unwrap()).0).collect();
        assert_eq!(shards.len(), 256);
    }
}
