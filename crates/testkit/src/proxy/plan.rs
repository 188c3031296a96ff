//! Which exchange goes wrong, and how.

use std::collections::VecDeque;

use super::fault::NetFault;
use crate::faulty::mix;

#[derive(Debug, Default)]
pub(super) struct Plan {
    next: VecDeque<NetFault>,
    matching: Vec<(Vec<u8>, NetFault)>,
    always: Option<NetFault>,
    random: Option<Random>,
}

#[derive(Debug)]
struct Random {
    seed: u64,
    drawn: u64,
    /// Of a thousand.
    rate: u64,
    faults: Vec<NetFault>,
}

impl Plan {
    pub(super) fn next(&mut self, fault: NetFault, times: usize) {
        self.next.extend(std::iter::repeat_n(fault, times));
    }

    pub(super) fn when(&mut self, needle: &[u8], fault: NetFault) {
        self.matching.push((needle.to_owned(), fault));
    }

    pub(super) fn always(&mut self, fault: NetFault) {
        self.always = Some(fault);
    }

    pub(super) fn at_random(&mut self, seed: u64, rate: u16, faults: &[NetFault]) {
        let faults = faults.to_vec();
        self.random =
            (!faults.is_empty()).then_some(Random { seed, drawn: 0, rate: u64::from(rate), faults });
    }

    /// The fault of an exchange that begins with these bytes.
    pub(super) fn fault(&mut self, bytes: &[u8]) -> Option<NetFault> {
        self.matched(bytes)
            .or_else(|| self.next.pop_front())
            .or(self.always)
            .or_else(|| self.random.as_mut().and_then(Random::draw))
    }

    /// The fault for these bytes, wherever in an exchange they are; it is used up.
    pub(super) fn matched(&mut self, bytes: &[u8]) -> Option<NetFault> {
        let contains = |needle: &[u8]| bytes.windows(needle.len().max(1)).any(|window| window == needle);
        let found = self.matching.iter().position(|(needle, _)| contains(needle))?;
        Some(self.matching.remove(found).1)
    }
}

impl Random {
    fn draw(&mut self) -> Option<NetFault> {
        self.drawn += 1;
        let number = mix(self.seed ^ mix(self.drawn));
        if number % 1000 >= self.rate {
            return None;
        }
        let which = mix(number) % self.faults.len() as u64;
        self.faults.get(usize::try_from(which).unwrap_or(0)).copied()
    }
}
