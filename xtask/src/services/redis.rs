//! One Redis, a Cluster of three primaries with a replica each, and five that know nothing of each other, for RedLock.

use super::Starting;
use super::server::{Server, free_port, wait_until};
use crate::cmd::Cmd;
use crate::failure::Failure;

/// A node talks to the others on a port that is so much higher.
const BUS: u16 = 10_000;

pub(super) fn one(starting: &mut Starting<'_>) -> Result<String, Failure> {
    let port = free_port(0)?;
    start(starting, port, &[])?;
    Ok(format!("redis://127.0.0.1:{port}"))
}

/// Their URLs, separated by commas.
pub(super) fn five(starting: &mut Starting<'_>) -> Result<String, Failure> {
    let urls = (0..5).map(|_| one(starting)).collect::<Result<Vec<_>, _>>()?;
    Ok(urls.join(","))
}

pub(super) fn cluster(starting: &mut Starting<'_>) -> Result<String, Failure> {
    let mut ports = Vec::new();
    for _ in 0..6 {
        let port = free_port(BUS)?;
        // Without the last, a primary that is killed early has no replica that is ready to follow it.
        let more = "--cluster-enabled yes --cluster-config-file nodes.conf --cluster-node-timeout 2000 \
                    --repl-diskless-sync-delay 0";
        start(starting, port, &more.split_whitespace().collect::<Vec<_>>())?;
        ports.push(port);
    }
    let nodes: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let create = Cmd::new("redis-cli").args(["--cluster", "create"]).args(nodes.iter().map(String::as_str));
    create.args(["--cluster-replicas", "1", "--cluster-yes"]).output()?;
    wait_until("the Cluster is whole, and its replicas follow", || {
        ports.iter().all(|port| {
            says(*port, &["cluster", "info"], "cluster_state:ok")
                && !says(*port, &["info", "replication"], "master_link_status:down")
        })
    })?;
    Ok(format!("redis-cluster://{}", nodes.join(",")))
}

pub(super) fn start(starting: &mut Starting<'_>, port: u16, more: &[&str]) -> Result<(), Failure> {
    let folder = starting.folder(&format!("redis-{port}"))?.display().to_string();
    let port_word = port.to_string();
    let mut args = vec!["--port", &port_word, "--bind", "127.0.0.1", "--dir", &folder, "--logfile", "log"];
    args.extend(["--save", "", "--appendonly", "no"]);
    args.extend(more);
    let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
    starting.servers.push(Server::start("redis-server", &args, starting.life)?);
    wait_until("redis-server answers", || says(port, &["ping"], "PONG"))
}

pub(super) fn says(port: u16, question: &[&str], answer: &str) -> bool {
    let ask = Cmd::new("redis-cli").args(["-p", &port.to_string()]).args(question.iter().copied());
    ask.output().is_ok_and(|said| said.contains(answer))
}
