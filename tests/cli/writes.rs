//! A server and the store give the same answers to what changes something. One folder is asked by its server, the
//! other straight at its store, and the same happens in both.

use crate::program::{Place, Said, Server, masked, words};
use crate::until::until;

const CONFIG: &str = r#"
[server]
allow_agents = true
agent_env = ["KEY"]

[agents.echo]
kind = "command"
command = ["cat"]

[agents.stuck]
kind = "command"
command = ["sh", "-c", "cat >/dev/null; exec sleep 600"]

[agents.asking]
kind = "command"
command = ["sh", "-c", """cat >/dev/null
if [ -n "$TENURE_APPROVAL" ]; then printf %s "$TENURE_APPROVAL"
else echo '{"awaiting_approval": {"question": "Send it?", "data": [1.50]}}' >&3; fi"""]
"#;

/// Every form of an answer.
const FORMS: [&str; 3] = ["--utc", "--json", "--quiet"];

/// Two folders in which the same happens.
struct Both {
    served: (Place, Server),
    stored: (Place, Server),
}

impl Both {
    fn new() -> Self {
        let one = || {
            let place = Place::with(CONFIG);
            let server = place.serve();
            (place, server)
        };
        Self { served: one(), stored: one() }
    }

    /// A command by the server and on the store, with what differs between the folders in the place of `RUN`.
    fn ask(&self, line: &str, runs: Option<&[String; 2]>) -> [Said; 2] {
        let line = |n: usize| runs.map_or_else(|| line.to_owned(), |runs| line.replace("RUN", &runs[n]));
        let mut served = words(&line(0));
        served.extend(["--url".to_owned(), self.served.1.url.clone()]);
        [self.served.0.run(&served), self.stored.0.run(&words(&line(1)))]
    }

    /// The same, and that both say the same; answers how it ended.
    fn same(&self, line: &str, form: &str, runs: Option<&[String; 2]>) -> i32 {
        let line = format!("{line} {form}");
        let [served, stored] = self.ask(&line, runs);
        assert_eq!(masked(&served.out), masked(&stored.out), "tenure {line}");
        assert_eq!(masked(&served.err), masked(&stored.err), "tenure {line}");
        assert_eq!(served.code(), stored.code(), "tenure {line}");
        stored.code()
    }

    /// Wants a run in both.
    fn runs(&self, task: &str) -> [String; 2] {
        self.ask(&format!("tasks run {task} -q"), None).map(|said| said.well().out.trim().to_owned())
    }

    /// Waits until both runs stand so.
    fn until(&self, runs: &[String; 2], status: &str) {
        let stand = || self.ask("runs show RUN --json", Some(runs)).map(|said| said.well().json());
        until(&format!("{runs:?} are {status}"), || stand().iter().all(|run| run["status"] == status));
    }
}

#[test]
fn tasks_and_agents_are_changed_alike() {
    let both = Both::new();
    let agent = "agents add writer --kind chat --endpoint http://127.0.0.1:1/v1 --model m --key-env KEY";
    let other = "agents add hook --kind http --endpoint http://127.0.0.1:1/hook --header X-Key=OTHER_KEY";
    for form in FORMS {
        for (line, code) in [
            ("tasks add t --agent echo --query q --cron '0 2 * * *' --metadata '{\"n\":1.00}'", 0),
            ("tasks add t --agent echo --query q", 4),
            ("tasks add u --agent elsewhere --query q", 0),
            ("tasks add v --agent echo --query q --every 0", 2),
            ("tasks edit t --priority 7 --every 90m --retries 2", 0),
            ("tasks edit t --agent elsewhere", 0),
            ("tasks edit t --agent echo --concurrency-limit 0", 2),
            ("tasks edit t --agent echo", 0),
            ("tasks edit nothing --priority 1", 3),
            ("tasks pause t", 0),
            ("tasks pause t", 0),
            ("tasks run t", 4),
            ("tasks run t --key k --override-pause --wait", 0),
            ("tasks run t --key k --override-pause --query other", 4),
            ("tasks resume t", 0),
            ("tasks resume nothing", 3),
            ("runs cancel --task t --reason enough", 0),
            ("tasks delete t", 0),
            ("tasks delete t", 3),
            ("tasks delete u --keep-running", 0),
            (agent, 0),
            (agent, 4),
            (other, 2),
            ("agents show writer", 0),
            ("agents delete writer", 0),
            ("agents delete writer", 3),
            ("agents delete echo", 2),
        ] {
            // What goes wrong is said in one form.
            if code == 0 || form == FORMS[0] {
                assert_eq!(both.same(line, form, None), code, "tenure {line} {form}");
            }
        }
    }
}

#[test]
fn runs_are_cancelled_retried_and_answered_alike() {
    let both = Both::new();
    for (task, agent) in [("stuck", "stuck"), ("asking", "asking")] {
        // What was cut off holds its session until its host hears of that: another need not wait for it.
        let line = format!("tasks add {task} --agent {agent} --query q --overlap allow_parallel");
        both.same(&line, "--utc", None);
    }
    for form in &FORMS[..2] {
        // One that executes.
        let stuck = both.runs("stuck");
        both.until(&stuck, "running");
        assert_eq!(both.same("runs retry RUN", form, Some(&stuck)), 4);
        assert_eq!(both.same("runs cancel RUN --reason enough", form, Some(&stuck)), 0);
        assert_eq!(both.same("runs wait RUN -q", "", Some(&stuck)), 6);
        assert_eq!(both.same("runs cancel RUN", form, Some(&stuck)), 0);
        assert_eq!(both.same("runs show RUN --events", "--json", Some(&stuck)), 0);
        assert_eq!(both.same("runs retry RUN --query again", form, Some(&stuck)), 0);
        // By force, and by what they have in common.
        let again = both.ask("runs list --task stuck --status queued,claimed,running -q", None);
        let again = again.map(|said| said.well().out.trim().to_owned());
        both.until(&again, "running");
        assert_eq!(both.same("runs cancel RUN --force --by 'the night shift'", form, Some(&again)), 0);
        let more = both.runs("stuck");
        both.until(&more, "running");
        assert_eq!(both.same("runs cancel --task stuck --force", form, None), 0);
        // One that waits for a person.
        let asking = both.runs("asking");
        both.until(&asking, "awaiting_approval");
        let answer = "runs resume RUN --reject --answer '{\"why\":\"no\",\"n\":1.50}'";
        assert_eq!(both.same(answer, form, Some(&asking)), 0);
        assert_eq!(both.same("runs wait RUN -q", "", Some(&asking)), 0);
        assert_eq!(both.same(answer, form, Some(&asking)), 4);
        assert_eq!(both.same("runs cat RUN output.md", "", Some(&asking)), 0);
        assert_eq!(both.same("runs cancel nothing", form, None), 3);
    }
}
