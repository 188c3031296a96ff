//! Round trips and bytes between a store and its server, as the testkit's proxy sees them.

use onlyonce_testkit::FaultProxy;

use crate::case::Counts;
use crate::{block_on, stores};

/// The cases of the stores that have a server.
pub(crate) fn cases() -> impl Iterator<Item = &'static str> {
    let served = |case: &&str| ["redis", "postgres", "mysql"].contains(&stores::place(case));
    stores::CASES.iter().copied().filter(served)
}

pub(crate) fn count(case: &'static str, calls: u64) -> Counts {
    let url = stores::url(stores::place(case));
    // `scheme://user@host:port/name`
    let (scheme, rest) = url.split_once("://").expect("a URL: run `cargo xtask bench --counts`");
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let server = authority.rsplit_once('@').map_or(authority, |(_, server)| server);
    let user = authority.strip_suffix(server).unwrap_or_default();
    block_on(async {
        let proxy = FaultProxy::start(server).await.expect("a free port");
        stores::run_at(case, &format!("{scheme}://{user}{}/{path}", proxy.address()), calls).await;
        let traffic = proxy.traffic();
        Counts::from([
            ("round trips", traffic.exchanges),
            ("bytes sent", traffic.to_server),
            ("bytes received", traffic.to_client),
        ])
    })
}
