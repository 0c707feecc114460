//! How the node is described, on its way from who keeps the Node object to who judges pods by it; and the question back,
//! whether a description that refuses a pod is still true.
//!
//! Owns the two channels. Never asks the API server itself, and never judges.

use super::placement::NodeView;
use tokio::sync::watch;

/// The end that describes the node; clones describe it to the same readers.
#[derive(Clone, Debug)]
pub struct Describer {
    view: watch::Sender<NodeView>,
    asked: watch::Sender<u64>,
}

impl Describer {
    /// Begins with a first description.
    pub fn new(view: NodeView) -> Self {
        Self {
            view: watch::Sender::new(view),
            asked: watch::Sender::new(0),
        }
    }

    /// The other end.
    pub fn subscribe(&self) -> Description {
        Description {
            view: self.view.subscribe(),
            asked: self.asked.clone(),
        }
    }

    /// What was last described.
    pub fn current(&self) -> NodeView {
        self.view.borrow().clone()
    }

    /// Describes the node anew; readers wake up only if that says something else.
    pub fn publish(&self, view: NodeView) {
        self.view.send_if_modified(|shown| {
            let changed = *shown != view;
            *shown = view;
            changed
        });
    }

    /// The questions asked from now on: the number of the last. Whoever answers it sets [`NodeView::looked`] to it.
    pub fn questions(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }
}

/// The end that pods are judged with.
#[derive(Clone, Debug)]
pub struct Description {
    view: watch::Receiver<NodeView>,
    asked: watch::Sender<u64>,
}

impl Description {
    /// The description as it is now; [`Description::changed`] tells of the next one.
    pub fn current(&mut self) -> NodeView {
        self.view.borrow_and_update().clone()
    }

    /// Waits for another description. An error means that there will be none.
    ///
    /// # Errors
    /// Nobody describes the node any more.
    pub async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.view.changed().await
    }

    /// Asks for a look at the node's object as it is now, past every cache. Returns the number of the question, which a
    /// description that answers it has reached ([`NodeView::looked`]); none if nobody is there to look.
    pub fn ask(&self) -> Option<u64> {
        if self.view.has_changed().is_err() || self.asked.receiver_count() == 0 {
            return None;
        }
        self.asked.send_modify(|number| *number += 1);
        Some(*self.asked.borrow())
    }
}
