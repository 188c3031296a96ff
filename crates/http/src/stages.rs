//! A call in two stages that share one piece of memory: until its body is read it may be dropped, afterwards it goes on by itself.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tracing::Span;

/// What the first stage led to.
pub(crate) enum Next<F, T> {
    /// From now on nobody can stop it.
    Run(F, Span),
    Answer(T),
}

pin_project! {
    #[project = StagesProj]
    enum Stages<P, F> {
        Preparing { #[pin] future: P },
        Running { #[pin] future: F, span: Span },
    }
}

impl<P, F> Future for Stages<P, F>
where
    P: Future<Output = Next<F, F::Output>>,
    F: Future,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        loop {
            match self.as_mut().project() {
                StagesProj::Running { future, span } => return span.in_scope(|| future.poll(cx)),
                StagesProj::Preparing { future } => match ready!(future.poll(cx)) {
                    Next::Run(future, span) => self.set(Self::Running { future, span }),
                    Next::Answer(answer) => return Poll::Ready(answer),
                },
            }
        }
    }
}

/// Both stages, without their types.
trait Staged<T>: Send {
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T>;
    fn is_running(&self) -> bool;
    fn go_on(self: Pin<Box<Self>>, runtime: &Handle);
}

impl<P, F> Staged<F::Output> for Stages<P, F>
where
    P: Future<Output = Next<F, F::Output>> + Send + 'static,
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        Future::poll(self, cx)
    }

    fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }

    fn go_on(self: Pin<Box<Self>>, runtime: &Handle) {
        runtime.spawn(self);
    }
}

/// A call on its way. A client that goes away stops it only while its body is read.
///
/// While somebody waits it is polled in place: a task for every call would cost more than the rest of the layer.
pub(crate) struct OnItsWay<T> {
    stages: Option<Pin<Box<dyn Staged<T>>>>,
    /// Where it goes on if nobody waits for it any more; known once it had to wait itself.
    runtime: Option<Handle>,
}

impl<T> OnItsWay<T> {
    pub(crate) fn new<P, F>(prepare: P) -> Self
    where
        P: Future<Output = Next<F, T>> + Send + 'static,
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        Self { stages: Some(Box::pin(Stages::Preparing { future: prepare })), runtime: None }
    }
}

impl<T> Future for OnItsWay<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out, so that a call that panics does not go on afterwards.
        let mut stages = self.stages.take().expect("a future is not polled after it is ready");
        let polled = stages.as_mut().poll(cx);
        if polled.is_pending() {
            if self.runtime.is_none() && stages.is_running() {
                self.runtime = Handle::try_current().ok();
            }
            self.stages = Some(stages);
        }
        polled
    }
}

impl<T> Drop for OnItsWay<T> {
    fn drop(&mut self) {
        // Only a call that was polled is running, and where it was polled there was a runtime.
        if let (Some(stages), Some(runtime)) = (self.stages.take(), &self.runtime)
            && stages.is_running()
        {
            stages.go_on(runtime);
        }
    }
}
