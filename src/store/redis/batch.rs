//! Calls that go to the server at once, and what each is an answer to.

use redis::{Cmd, Pipeline};

use super::answer::{self, List};
use super::claims::Group;
use super::fault::{Fault, Step};
use super::link::Shared;
use super::message::Message;
use super::writer::{Asked, Reply};
use crate::store::{Decision, Refusal};

/// Beyond so many decisions or bytes the next call of a script begins: the server does nothing else during one.
const MOST_DECISIONS: usize = 500;
const MOST_BYTES: usize = 4 << 20;

type Verdicts = Vec<Result<(), Refusal>>;

/// Decisions of one call of the script, in order.
#[derive(Default)]
pub(super) struct Commits {
    grants: Vec<Grant>,
    calls: Vec<(Vec<Decision>, Reply<Verdicts>)>,
}

struct Grant {
    group: usize,
    request: usize,
    decision: Decision,
}

impl Commits {
    fn is_empty(&self) -> bool {
        self.grants.is_empty() && self.calls.is_empty()
    }

    /// Hands out what became of each.
    pub(super) fn answer(
        self,
        verdicts: Step<List>,
        groups: &mut [Group],
        name: &str,
        after: &mut Vec<Box<dyn FnOnce() + Send>>,
    ) {
        let mut verdicts = verdicts;
        let mut next = |decision: &Decision| match &mut verdicts {
            Ok(list) => list.next().and_then(|value| answer::verdict(value, decision)),
            Err(fault) => Err(fault.clone()),
        };
        for Grant { group, request, decision } in self.grants {
            let verdict = next(&decision);
            if let Some(group) = groups.get_mut(group) {
                group.granted(request, decision, verdict);
            }
        }
        for (decisions, reply) in self.calls {
            let verdicts: Vec<Step<Result<(), Refusal>>> = decisions.iter().map(&mut next).collect();
            let made = verdicts.iter().any(|verdict| matches!(verdict, Ok(Ok(()))));
            let answer: Step<Verdicts> = verdicts.into_iter().collect();
            let answer = answer.map_err(|fault| match fault {
                // Others of the call were applied.
                Fault::Unreadable(why) if made => {
                    Fault::Lost(format!("one of its records cannot be read: {why}"))
                }
                fault => fault,
            });
            let answer = answer.map_err(|fault| fault.of_write(name));
            after.push(Box::new(move || reply.send(answer)));
        }
    }
}

/// A batch in the making.
pub(super) struct Batch<'a> {
    shared: &'a Shared,
    sender: &'a str,
    pipe: Pipeline,
    asked: Vec<Asked>,
    message: Message,
    commits: Commits,
    errors: Vec<(Reply<Verdicts>, Fault)>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(shared: &'a Shared, sender: &'a str) -> Self {
        let mut pipe = redis::pipe();
        pipe.ignore_errors();
        let (message, commits) = (Message::new(), Commits::default());
        Self { shared, sender, pipe, asked: Vec::new(), message, commits, errors: Vec::new() }
    }

    /// The grants of a group, before what was asked since.
    pub(super) fn grants(&mut self, number: usize, group: &mut Group) {
        for (request, decision) in group.grants() {
            match self.message.add(&decision, true) {
                Ok(()) => self.commits.grants.push(Grant { group: number, request, decision }),
                Err(fault) => group.granted(request, decision, Err(fault)),
            }
        }
    }

    /// All decisions of a call go together; none goes if one makes no sense.
    pub(super) fn commit(&mut self, decisions: Vec<Decision>, reply: Reply<Verdicts>) {
        if self.message.decisions >= MOST_DECISIONS || self.message.bytes >= MOST_BYTES {
            self.end_commits();
        }
        let mark = self.message.mark();
        for decision in &decisions {
            if let Err(fault) = self.message.add(decision, false) {
                self.message.back_to(mark);
                self.errors.push((reply, fault));
                return;
            }
        }
        self.commits.calls.push((decisions, reply));
    }

    /// Another call of a script, after what was decided before it.
    pub(super) fn ask(&mut self, call: Cmd, asked: Asked) {
        self.end_commits();
        self.pipe.add_command(call);
        self.asked.push(asked);
    }

    /// What a group wants to know, after all that is written.
    pub(super) fn questions(&mut self, number: usize, group: &mut Group) {
        let repeated: Vec<(usize, Cmd)> = group
            .repeated()
            .into_iter()
            .map(|(request, claim)| {
                let mut cmd = self.shared.write("granted");
                cmd.arg("").arg(&claim.instance.bits().to_be_bytes()[..]).arg(&claim.nonce.to_be_bytes()[..]);
                (request, cmd)
            })
            .collect();
        for (request, cmd) in repeated {
            self.ask(cmd, Asked::Granted { group: number, request });
        }
        let Some(wanted) = group.wants() else { return };
        let mut cmd = self.shared.write("pick");
        cmd.arg(self.sender).arg(wanted).arg(group.agents().len());
        for agent in group.agents() {
            cmd.arg(agent.as_str());
        }
        cmd.arg(group.passed_over());
        self.ask(cmd, Asked::Pick { group: number });
    }

    fn end_commits(&mut self) {
        if self.commits.is_empty() {
            return;
        }
        let mut cmd = self.shared.write_in(self.message.command(), "commit");
        cmd.arg(self.sender);
        self.message.put_into(&mut cmd);
        self.pipe.add_command(cmd);
        self.asked.push(Asked::Commits(std::mem::take(&mut self.commits)));
        self.message = Message::new();
    }

    #[allow(clippy::type_complexity, reason = "a batch, what it asks, and who asked nonsense")]
    pub(super) fn done(mut self) -> (Pipeline, Vec<Asked>, Vec<(Reply<Verdicts>, Fault)>) {
        self.end_commits();
        let options = &self.shared.options;
        if options.replicas > 0 && !self.asked.is_empty() {
            self.pipe.cmd("WAIT").arg(options.replicas).arg(options.response_timeout.as_millis().to_string());
        }
        (self.pipe, self.asked, self.errors)
    }
}
