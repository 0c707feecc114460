//! `/debug/api_priority_and_fairness/`: what waits where, as upstream writes it: values with commas, in aligned columns. Pure.
//!
//! Requests that are worked on are counted and not listed: nothing is noted of them.

use super::level::{LevelView, Note};
use jiff::Timestamp;
use std::time::Duration;

/// Widths of Go's text/tabwriter as upstream sets it up.
const WIDTH_MIN: usize = 8;

/// One line for each level.
pub(super) fn priority_levels(levels: &[LevelView]) -> String {
    let head = [
        "PriorityLevelName",
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
        "DispatchedRequests",
        "RejectedRequests",
        "TimedoutRequests",
        "CancelledRequests",
    ];
    let rows = levels.iter().map(|level| {
        let mut row = vec![
            level.name.to_string(),
            level.active.to_string(),
            level.is_idle.to_string(),
            level.is_quiescing.to_string(),
            level.waiting.to_string(),
            level.executing.to_string(),
        ];
        row.extend(level.counts.iter().map(u64::to_string));
        row
    });
    table(&head, rows.collect())
}

/// One line for each queue.
pub(super) fn queues(levels: &[LevelView]) -> String {
    let head = [
        "PriorityLevelName",
        "Index",
        "PendingRequests",
        "ExecutingRequests",
        "SeatsInUse",
        "NextDispatchR",
        "InitialSeatsSum",
        "MaxSeatsSum",
        "TotalWorkSum",
    ];
    /// What upstream takes a request to last, in seconds.
    const EXPECTED: f64 = 0.003;
    let rows = levels.iter().flat_map(|level| {
        level.queues.iter().map(|queue| {
            let wanted: usize = queue.waiting.iter().map(|(_, seats)| seats).sum();
            vec![
                level.name.to_string(),
                queue.index.to_string(),
                queue.waiting.len().to_string(),
                queue.executing.to_string(),
                queue.seats.to_string(),
                format!("{:.8}ss", queue.virtual_start),
                wanted.to_string(),
                wanted.to_string(),
                format!("{:.8}ss", wanted as f64 * EXPECTED),
            ]
        })
    });
    table(&head, rows.collect())
}

/// One line for each request that waits; `since` is how long the server runs.
pub(super) fn requests(levels: &[LevelView], with_details: bool, now: Timestamp, since: Duration) -> String {
    let mut head = vec![
        "PriorityLevelName",
        "FlowSchemaName",
        "QueueIndex",
        "RequestIndexInQueue",
        "FlowDistingsher",
        "ArriveTime",
        "InitialSeats",
        "FinalSeats",
        "AdditionalLatency",
        "StartTime",
    ];
    if with_details {
        head.extend([
            "UserName",
            "Verb",
            "APIPath",
            "Namespace",
            "Name",
            "APIVersion",
            "Resource",
            "SubResource",
        ]);
    }
    let mut rows = Vec::new();
    for level in levels {
        for queue in &level.queues {
            for (number, (ticket, seats)) in queue.waiting.iter().enumerate() {
                let Some(note) = level.notes.get(ticket) else { continue };
                let arrived = now.checked_sub(since.saturating_sub(note.arrived)).unwrap_or(now);
                let mut row = vec![
                    level.name.to_string(),
                    note.schema.clone(),
                    queue.index.to_string(),
                    number.to_string(),
                    note.distinguisher.clone(),
                    arrived.to_string(),
                    seats.to_string(),
                    "0".to_owned(),
                    "0s".to_owned(),
                    "0001-01-01T00:00:00Z".to_owned(),
                ];
                if with_details {
                    row.extend(details(note));
                }
                rows.push(row);
            }
        }
    }
    table(&head, rows)
}

fn details(note: &Note) -> [String; 8] {
    let info = &note.info;
    let version = match info.group.as_str() {
        "" => info.version.clone(),
        group => format!("{group}/{}", info.version),
    };
    [
        note.user.clone(),
        info.verb.clone(),
        info.path.clone(),
        info.namespace.clone(),
        info.name.clone(),
        version,
        info.resource.clone(),
        info.subresource.clone(),
    ]
}

/// Cells end in commas and are as wide as their column's widest, with a blank; the last of a line is as it is.
fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut all = vec![head.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()];
    all.extend(rows);
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            let cells = all.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|cell| cell.chars().count() + 2).max();
            widest.unwrap_or(0).max(WIDTH_MIN)
        })
        .collect();
    let mut text = String::new();
    for row in &all {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // A user's name is what a client sent: it stays within its line.
            let cell: String = cell.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            match column + 1 == row.len() {
                true => text.push_str(&cell),
                false => text.push_str(&format!("{:<width$}", format!("{cell},"))),
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_names_stay_in_their_line() {
        let rows = vec![
            vec!["a\nb".to_owned(), "1".to_owned()],
            vec!["a-long-name".to_owned(), "22".to_owned()],
        ];
        assert_eq!(
            table(&["Name", "Index"], rows),
            "Name,        Index\na b,         1\na-long-name, 22\n"
        );
    }
}
