//! Connections to the admin API, with the limits and time-outs of every other.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::Service;
use onlyonce::http::Account;
use tower::ServiceExt;

use super::Admin;
use crate::gateway::serve::{App, Serving};
use crate::gateway::{Doings, Peer, Tail, Unread};

/// What is behind the admin listener.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) router: Router,
    pub(super) admin: Arc<Admin>,
}

impl App for Listener {
    type Body = Body;
    type Service = Requests;

    fn serving(&self) -> Arc<Serving> {
        Arc::new(Serving::plain(self.admin.gate.live().limits))
    }

    fn account(&self) -> Account {
        self.admin.gate.resources.memory.account_of_connection()
    }

    fn service(&self, _: Peer, doings: Arc<Doings>) -> Requests {
        Requests { router: self.router.clone(), doings }
    }
}

/// Answers the requests of one connection.
#[derive(Debug)]
pub(super) struct Requests {
    router: Router,
    doings: Arc<Doings>,
}

impl Service<Request<Incoming>> for Requests {
    type Response = Response<Tail<Body>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let multiplexed = request.version() == Version::HTTP_2;
        let busy = self.doings.request(multiplexed, None);
        let unread = Unread::new(busy, self.doings.account.clone(), multiplexed);
        if multiplexed {
            self.doings.hand_over_stream(Arc::clone(&unread));
        }
        let answer = self.router.clone().oneshot(request.map(Body::new));
        Box::pin(
            async move { answer.await.map(|response| response.map(|body| Tail::new(body, unread, false))) },
        )
    }
}
