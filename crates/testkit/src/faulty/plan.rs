//! Which call fails, and how.

use std::collections::{HashMap, VecDeque};

use onlyonce_core::RecordId;

use super::fault::{Fault, Op};
use super::rates::Rates;

#[derive(Debug, Default)]
pub(super) struct Plan {
    scripts: HashMap<Op, VecDeque<(Fault, u32)>>,
    always: HashMap<Op, Fault>,
    random: Option<(u64, Rates)>,
    calls: HashMap<Op, u64>,
    calls_of: HashMap<(Op, Option<RecordId>), u64>,
}

impl Plan {
    pub(super) fn script(&mut self, op: Op, fault: Fault, times: u32) {
        self.scripts.entry(op).or_default().push_back((fault, times));
    }

    pub(super) fn always(&mut self, op: Op, fault: Fault) {
        self.always.insert(op, fault);
    }

    pub(super) fn at_random(&mut self, seed: u64, rates: Rates) {
        self.random = Some((seed, rates));
    }

    pub(super) fn heal(&mut self) {
        self.scripts.clear();
        self.always.clear();
        self.random = None;
    }

    pub(super) fn calls(&self, op: Op) -> u64 {
        self.calls.get(&op).copied().unwrap_or(0)
    }

    /// Counts a call and says how it fails.
    pub(super) fn fault(&mut self, op: Op, id: Option<&RecordId>) -> Option<Fault> {
        *self.calls.entry(op).or_default() += 1;
        self.scripted(op).or_else(|| self.always.get(&op).copied()).or_else(|| self.drawn(op, id))
    }

    fn scripted(&mut self, op: Op) -> Option<Fault> {
        let script = self.scripts.get_mut(&op)?;
        script.retain(|(_, times)| *times > 0);
        let (fault, times) = script.front_mut()?;
        *times -= 1;
        Some(*fault)
    }

    fn drawn(&mut self, op: Op, id: Option<&RecordId>) -> Option<Fault> {
        let (seed, rates) = self.random?;
        let number = self.calls_of.entry((op, id.copied())).or_default();
        *number += 1;
        let mut state = mix(seed ^ mix(*number)) ^ op as u64;
        for word in id.map_or(&[][..], |id| &id.as_bytes()[..]).chunks(8) {
            state = word.iter().fold(mix(state), |state, byte| state.rotate_left(8) ^ u64::from(*byte));
        }
        rates.pick(mix(state), mix(state.wrapping_add(1)))
    }
}

/// SplitMix64, spelled out, so that a seed means the same with every release of every crate.
pub(crate) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
