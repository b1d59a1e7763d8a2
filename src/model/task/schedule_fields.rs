//! The flat form of a schedule. What does not belong to its type is refused by name.

use serde::{Deserialize, Serialize};

use super::check::Problems;
use super::{Schedule, Seconds, Timestamp};
use crate::model::{Cron, CronError, DstFold, DstGap, Invalid, MisfirePolicy, Timing};

/// What is wanted more often is wanted all the time: it would fill the store with skipped occurrences.
const SHORTEST_INTERVAL: Seconds = Seconds::from_ms(100);
const MOST_CATCH_UP: u32 = 1000;
const MOST_ZONE_BYTES: usize = 100;

/// The flat form of a schedule.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleFields {
    #[serde(default, rename = "type")]
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seconds: Option<Seconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expression: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_at: Option<Timestamp>,
    timezone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jitter_seconds: Option<Seconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    misfire_policy: Option<MisfirePolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    misfire_grace_seconds: Option<Seconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    catch_up_limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    catch_up_window_seconds: Option<Seconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    catch_up_spread_seconds: Option<Seconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dst_gap: Option<DstGap>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dst_fold: Option<DstFold>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    #[default]
    Manual,
    Interval,
    Cron,
    Once,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Interval => "interval",
            Self::Cron => "cron",
            Self::Once => "once",
        }
    }
}

impl ScheduleFields {
    /// The schedule, if everything is there; what is wrong is noted, to the last field.
    pub(super) fn check(self, problems: &mut Problems) -> Option<Schedule> {
        self.check_belonging(problems);
        let timing = self.check_timing(problems);
        let timezone = self.timezone.unwrap_or_else(|| "UTC".to_owned());
        let known = timezone.len() <= MOST_ZONE_BYTES && jiff::tz::TimeZone::get(&timezone).is_ok();
        let shown: String = timezone.chars().take(40).collect();
        let expected = format!("a zone of the IANA database such as \"Europe/Berlin\", found {shown:?}");
        problems.expect(known, "schedule.timezone", expected);
        let in_order = self.start_at.is_none() || self.end_at.is_none() || self.start_at < self.end_at;
        problems.expect(in_order, "schedule.end_at", "an instant after \"start_at\"");
        problems.above_zero("schedule.catch_up_window_seconds", self.catch_up_window_seconds);
        let limit = self.catch_up_limit.unwrap_or(25);
        let fits = (1..=MOST_CATCH_UP).contains(&limit);
        problems.expect(fits, "schedule.catch_up_limit", format!("1 to {MOST_CATCH_UP}, found {limit}"));
        Some(Schedule {
            timing: timing?,
            timezone,
            start_at: self.start_at,
            end_at: self.end_at,
            jitter: self.jitter_seconds.unwrap_or_default(),
            misfire_policy: self.misfire_policy.unwrap_or_default(),
            misfire_grace: self.misfire_grace_seconds.unwrap_or(Seconds::new(60)),
            catch_up_limit: limit,
            catch_up_window: self.catch_up_window_seconds,
            catch_up_spread: self.catch_up_spread_seconds,
            dst_gap: self.dst_gap.unwrap_or_default(),
            dst_fold: self.dst_fold.unwrap_or_default(),
        })
    }

    fn check_belonging(&self, problems: &mut Problems) {
        use Kind::{Cron, Interval, Once};
        let repeats: &[Kind] = &[Interval, Cron];
        let fires: &[Kind] = &[Interval, Cron, Once];
        let fields: [(&str, bool, &[Kind]); 13] = [
            ("seconds", self.seconds.is_some(), &[Interval]),
            ("expression", self.expression.is_some(), &[Cron]),
            ("run_at", self.run_at.is_some(), &[Once]),
            ("start_at", self.start_at.is_some(), repeats),
            ("end_at", self.end_at.is_some(), repeats),
            ("jitter_seconds", self.jitter_seconds.is_some(), fires),
            ("misfire_policy", self.misfire_policy.is_some(), fires),
            ("misfire_grace_seconds", self.misfire_grace_seconds.is_some(), fires),
            ("catch_up_limit", self.catch_up_limit.is_some(), fires),
            ("catch_up_window_seconds", self.catch_up_window_seconds.is_some(), fires),
            ("catch_up_spread_seconds", self.catch_up_spread_seconds.is_some(), fires),
            ("dst_gap", self.dst_gap.is_some(), &[Cron]),
            ("dst_fold", self.dst_fold.is_some(), &[Cron]),
        ];
        for (field, given, kinds) in fields {
            let words: Vec<&str> = kinds.iter().map(|kind| kind.word()).collect();
            let expected =
                format!("nothing: it belongs to {}, not to {}", words.join(" and "), self.kind.word());
            problems.expect(!given || kinds.contains(&self.kind), &format!("schedule.{field}"), expected);
        }
    }

    fn check_timing(&self, problems: &mut Problems) -> Option<Timing> {
        match self.kind {
            Kind::Manual => Some(Timing::Manual),
            Kind::Interval => {
                if let Some(every) = self.seconds {
                    let expected = format!("at least {SHORTEST_INTERVAL}, found {every}");
                    problems.expect(every >= SHORTEST_INTERVAL, "schedule.seconds", expected);
                }
                let every = problems.need("schedule.seconds", self.seconds, "a number of seconds above 0")?;
                Some(Timing::Interval { every })
            }
            Kind::Cron => {
                let expression =
                    problems.need("schedule.expression", self.expression.clone(), "a cron expression")?;
                if let Err(CronError { column, expected }) = Cron::parse(&expression) {
                    problems.expect(false, "schedule.expression", format!("{expected} (at column {column})"));
                }
                Some(Timing::Cron { expression })
            }
            Kind::Once => {
                let run_at = problems.need("schedule.run_at", self.run_at, "an instant")?;
                Some(Timing::Once { run_at })
            }
        }
    }
}

impl TryFrom<ScheduleFields> for Schedule {
    type Error = Invalid;

    fn try_from(fields: ScheduleFields) -> Result<Self, Invalid> {
        let mut problems = Problems::default();
        let schedule = fields.check(&mut problems);
        problems.done(schedule)
    }
}

impl From<Schedule> for ScheduleFields {
    /// Only what belongs to the type: the rest means nothing, and would be refused when it is read again.
    fn from(schedule: Schedule) -> Self {
        let mut fields = Self { timezone: Some(schedule.timezone), ..Self::default() };
        let mut repeats = false;
        match schedule.timing {
            Timing::Manual => return fields,
            Timing::Interval { every } => {
                fields.kind = Kind::Interval;
                fields.seconds = Some(every);
                repeats = true;
            }
            Timing::Cron { expression } => {
                fields.kind = Kind::Cron;
                fields.expression = Some(expression);
                fields.dst_gap = Some(schedule.dst_gap);
                fields.dst_fold = Some(schedule.dst_fold);
                repeats = true;
            }
            Timing::Once { run_at } => {
                fields.kind = Kind::Once;
                fields.run_at = Some(run_at);
            }
        }
        fields.start_at = schedule.start_at.filter(|_| repeats);
        fields.end_at = schedule.end_at.filter(|_| repeats);
        fields.jitter_seconds = Some(schedule.jitter);
        fields.misfire_policy = Some(schedule.misfire_policy);
        fields.misfire_grace_seconds = Some(schedule.misfire_grace);
        fields.catch_up_limit = Some(schedule.catch_up_limit);
        fields.catch_up_window_seconds = schedule.catch_up_window;
        fields.catch_up_spread_seconds = schedule.catch_up_spread;
        fields
    }
}
