//! Listings, page by page. A cursor names the last entry of its page and the listing it belongs to.

use super::state::State;
use crate::model::{Occurrence, Run, ScheduleState, Task, TaskId, Timestamp};
use crate::store::{Counted, Page, PageRequest, RefusedKind, RunFilter, StoreError};

/// How many runs a page looks at.
const LOOKED_AT: usize = 20_000;

impl State {
    pub(super) fn page_of_tasks(
        &self,
        page: &PageRequest,
    ) -> Result<Page<(Task, ScheduleState)>, StoreError> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = position(page, "tasks", |text| TaskId::new(text).ok())?;
        let from = after.map_or(Unbounded, Excluded);
        let entries = self.tasks.range((from, Unbounded)).map(|(_, entry)| entry.read());
        Ok(cut(entries, page, |(task, _)| format!("tasks:{}", task.spec.task_id)))
    }

    pub(super) fn page_of_runs(
        &self,
        filter: &RunFilter,
        page: &PageRequest,
    ) -> Result<Page<Run>, StoreError> {
        let below = position(page, "runs", |text| text.parse().ok())?.unwrap_or(u64::MAX);
        let numbers = self.candidates(filter, below);
        let text = filter.text.as_ref().map(|text| text.to_ascii_lowercase());
        let (mut looked_at, mut last) = (0, None);
        let found = numbers
            .take_while(|number| {
                let more = looked_at < LOOKED_AT;
                if more {
                    looked_at += 1;
                    last = Some(*number);
                }
                more
            })
            .filter_map(|number| Some((number, &self.runs.get(number)?.run)))
            .filter(|(_, run)| matches(filter, text.as_deref(), run))
            .map(|(number, run)| (number, run.clone()));
        let Page { items, mut next, corrupt } = cut(found, page, |(number, _)| format!("runs:{number}"));
        if next.is_none() && looked_at == LOOKED_AT {
            // Enough was looked at: who asks for more goes on from here.
            next = last.map(|number| format!("runs:{number}"));
        }
        Ok(Page { items: items.into_iter().map(|(_, run)| run).collect(), next, corrupt })
    }

    pub(super) fn count(&self, filter: &RunFilter, most: u64) -> Counted {
        let text = filter.text.as_ref().map(|text| text.to_ascii_lowercase());
        let mut looked_at = self.candidates(filter, u64::MAX);
        let mut count = 0;
        for number in looked_at.by_ref().take(LOOKED_AT) {
            let found = self.runs.get(number).is_some_and(|r| matches(filter, text.as_deref(), &r.run));
            if found && count == most {
                return Counted { count, exact: false };
            }
            count += u64::from(found);
        }
        Counted { count, exact: looked_at.next().is_none() }
    }

    /// Runs below a number, the newest first, among which all are that the filter lets through.
    fn candidates<'a>(&'a self, filter: &'a RunFilter, below: u64) -> Box<dyn Iterator<Item = u64> + 'a> {
        match &filter.task_id {
            Some(task_id) => Box::new(self.index.of_task(task_id, below)),
            None if filter.owned == Some(true) => Box::new(self.index.owned(below)),
            None if !filter.statuses.is_empty() => Box::new(self.index.in_states(&filter.statuses, below)),
            None => Box::new(self.runs.below(below)),
        }
    }

    pub(super) fn page_of_occurrences(
        &self,
        task_id: &TaskId,
        page: &PageRequest,
    ) -> Result<Page<Occurrence>, StoreError> {
        let before = position(page, "occurrences", |text| text.parse().ok())?;
        let before = Timestamp::from_ms(before.unwrap_or(i64::MAX));
        let found = self.occurrences.before(task_id, before).cloned();
        Ok(cut(found, page, |occurrence| format!("occurrences:{}", occurrence.due_at.ms())))
    }
}

/// Takes a page, and one entry more to know whether there is another.
fn cut<T>(
    mut entries: impl Iterator<Item = T>,
    page: &PageRequest,
    cursor: impl Fn(&T) -> String,
) -> Page<T> {
    let items: Vec<T> = entries.by_ref().take(page.limit).collect();
    let next = items.last().filter(|_| entries.next().is_some()).map(cursor);
    Page { items, next, corrupt: Vec::new() }
}

fn position<T>(
    page: &PageRequest,
    listing: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, StoreError> {
    if page.limit == 0 {
        let message = "the limit of a page was 0, expected at least 1";
        return Err(StoreError::refused(RefusedKind::Invalid, message));
    }
    let Some(cursor) = &page.cursor else { return Ok(None) };
    let place = cursor.strip_prefix(listing).and_then(|rest| parse(rest.strip_prefix(':')?));
    place.map(Some).ok_or_else(|| {
        let shown: String = cursor.chars().take(40).collect();
        let message = format!("{shown:?} is no cursor of the {listing}; start again without one");
        StoreError::refused(RefusedKind::Invalid, message)
    })
}

/// Whether a filter lets a run through; its text is given in lower case.
pub(in crate::store) fn matches(filter: &RunFilter, text: Option<&str>, run: &Run) -> bool {
    let spec = &run.spec;
    filter.task_id.as_ref().is_none_or(|task_id| *task_id == spec.task_id)
        && filter.agent_id.as_ref().is_none_or(|agent_id| *agent_id == spec.agent_id)
        && filter.session_id.as_ref().is_none_or(|session_id| *session_id == spec.session_id)
        && (filter.statuses.is_empty() || filter.statuses.contains(&run.status))
        && filter.trigger.is_none_or(|trigger| trigger == spec.trigger)
        && filter.created_after.is_none_or(|after| spec.queued_at >= after)
        && filter.created_before.is_none_or(|before| spec.queued_at < before)
        && filter.owned.is_none_or(|owned| owned == spec.is_owned())
        && text.is_none_or(|text| spec.query.to_ascii_lowercase().contains(text))
}
