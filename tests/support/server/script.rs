//! Prepared answers for several agents at once.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::{Answer, Request, Responder};

/// The answers of each agent in order. An agent is recognized by words in its system prompt or its first message.
///
/// A request that matches no agent, a request without an answer, and an answer that was never requested
/// fail the test.
#[derive(Default)]
pub(crate) struct ScriptedAgents {
    agents: Vec<Agent>,
}

struct Agent {
    prompt_text: String,
    answers: Mutex<VecDeque<Answer>>,
}

impl ScriptedAgents {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// One agent whatever its words, for jobs without subagents.
    pub(crate) fn of(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::new().agent("", answers)
    }

    /// Adds an agent. If the words of several match, the first one answers.
    pub(crate) fn agent(mut self, words: &str, answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers = Mutex::new(answers.into_iter().collect());
        self.agents.push(Agent { prompt_text: words.to_owned(), answers });
        self
    }
}

impl Responder for ScriptedAgents {
    fn answer(&self, request: &Request) -> Answer {
        let (prompt, system) = (request.prompt(), request.system());
        let fits = |agent: &&Agent| prompt.contains(&agent.prompt_text) || system.contains(&agent.prompt_text);
        let Some(agent) = self.agents.iter().find(fits) else {
            panic!("no agent in the script has the prompt {prompt:?}")
        };
        let next = agent.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        next.unwrap_or_else(|| panic!("the script has no further answer for {:?}", agent.prompt_text))
    }

    fn unused_answers(&self) -> Vec<String> {
        let left = |agent: &Agent| agent.answers.lock().unwrap_or_else(PoisonError::into_inner).len();
        let agents = self.agents.iter().filter(|agent| left(agent) > 0);
        agents
            .map(|agent| format!("{} answers for {:?} were never asked for", left(agent), agent.prompt_text))
            .collect()
    }
}
