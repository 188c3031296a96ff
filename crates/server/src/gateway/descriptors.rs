//! The file descriptors of this process, shared out between callers and upstreams.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What store, log, listeners and the admin API need.
const OTHERS: usize = 192;

/// How many sockets there are for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptors {
    pub(crate) callers: usize,
    pub(crate) upstreams: usize,
}

/// Shares out what the system gives; it is asked for as much as it allows. With a warning if that is not enough for so many connections.
pub(crate) fn share_out(connections: usize) -> (Descriptors, Option<String>) {
    let wanted = connections.saturating_mul(2).saturating_add(OTHERS);
    let (given, hard) = raise(wanted as u64);
    let shares = shares(connections, usize::try_from(given).unwrap_or(usize::MAX));
    let warning = (shares.callers < connections).then(|| {
        let hint = if given < hard { "" } else { " (its hard limit)" };
        format!(
            "limits.connections: {connections} connections need about {wanted} file descriptors, and the process may have {given}{hint}; only {} are taken at a time. Raise the limit (LimitNOFILE=, ulimit -n), or lower --connections",
            shares.callers
        )
    });
    (shares, warning)
}

fn shares(connections: usize, given: usize) -> Descriptors {
    // Every call may need a connection of its own to its upstream.
    let left = given.saturating_sub(OTHERS.min(given / 2));
    let callers = connections.min(left / 2).max(1);
    Descriptors { callers, upstreams: (left - callers.min(left)).max(1) }
}

/// The limit after it was raised as far as `wanted`, if it could be, and the hard limit.
fn raise(wanted: u64) -> (u64, u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let (soft, hard) = (current.unwrap_or(u64::MAX), maximum.unwrap_or(u64::MAX));
    // Upstreams with HTTP/1.1 may need more than one connection for each caller's: room to spare is welcome.
    let raised = wanted.saturating_mul(4).min(hard).max(soft);
    let set = raised > soft && setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }).is_ok();
    (if set { raised } else { soft }, hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_get_at_most_half_of_what_is_left() {
        assert_eq!(shares(4096, 100_000), Descriptors { callers: 4096, upstreams: 100_000 - 192 - 4096 });
        assert_eq!(shares(4096, 1024), Descriptors { callers: 416, upstreams: 416 });
        assert_eq!(shares(4096, 64), Descriptors { callers: 16, upstreams: 16 });
        assert_eq!(shares(4096, 1), Descriptors { callers: 1, upstreams: 1 });
    }
}
