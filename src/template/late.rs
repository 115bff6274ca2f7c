//! Texts that are rendered when a run has started, from a plan instead of a job file.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::Value;
use minijinja::machinery::{ast, parse};

use super::engine::{Engine, value};
use super::instrument::InstrumentedTemplate;
use super::placeholder::Placeholder;
use super::texts::{Template, TemplateText, Templates, TextOrigin};
use super::variables::{BEFORE, STATE};
use crate::diagnostic::Source;

impl Templates {
    /// An engine for plans: what is known only when a run has started is a placeholder.
    pub fn plan_engine(&self, values: &serde_json::Value) -> Engine<'_> {
        let known = values.as_object().into_iter().flatten().map(|(name, part)| (name.as_str(), value(part)));
        let late = [BEFORE, STATE].map(|name| (name, Placeholder::value(name)));
        Engine::new(Value::from_pairs(known.chain(late)), self, |_| true)
    }

    /// The name of a text of the job file, or the path of its file, and the contents of all files that it includes, by their paths.
    pub fn with_includes(&self, template: &Template) -> BTreeMap<String, String> {
        let (mut names, mut open) = (BTreeSet::new(), vec![template.name.clone()]);
        while let Some(name) = open.pop() {
            if names.insert(name.clone()) {
                open.extend(self.includes.get(&name).into_iter().flatten().cloned());
            }
        }
        let text = |name: String| self.texts.get(&name).map(|text| (name, text.text.to_string()));
        names.into_iter().filter_map(text).collect()
    }

    /// Texts of a plan, by name. Those that can't be parsed fail when they are rendered.
    pub fn of_plan(texts: &BTreeMap<String, String>) -> Self {
        let mut templates = Self::default();
        for (name, text) in texts {
            if let Ok(ast::Stmt::Template(root)) = parse(text, name, Default::default()) {
                templates.instrumented.insert(name.clone(), InstrumentedTemplate::new(text, &root.children));
            }
            let origin = TextOrigin::File(Source::new(name, text));
            templates.texts.insert(name.clone(), TemplateText { text: text.as_str().into(), origin });
        }
        templates
    }
}

impl Templates {
    /// An engine that renders these texts when a run has started, and prints the data of steps as JSON.
    pub fn late_engine(&self, values: &serde_json::Value) -> Engine<'_> {
        self.engine(values).printing_json()
    }
}

impl Template {
    /// A text of [`Templates::of_plan`].
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// Its name: the path of a file, or that of a text of the job file.
    pub fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::node;
    use super::super::{Loader, TemplateVariables, TextRole};
    use super::*;

    fn planned(text: &str) -> Result<String, String> {
        let names = TemplateVariables {
            before: ["issues", "others", "files"].map(str::to_owned).to_vec(),
            has_state: true,
            ..TemplateVariables::default()
        };
        let mut loader = Loader::new(None, &names);
        let node = node(text);
        let template = loader.text(&node.node, &node.value, TextRole::Prompt);
        let (templates, findings) = loader.finish();
        assert!(findings.is_empty(), "{findings:?}");
        assert!(templates.is_late(&template), "{text}");
        let values =
            json!({ "inputs": {}, "workspace": "/w", "job": { "name": "j" }, "run": { "id": "r", "date": "d" } });
        templates.plan_engine(&values).render(&template).map_err(|finding| finding.message)
    }

    #[test]
    fn unknown_values_are_shown_by_their_names() {
        for (text, shown) in [
            ("{{ before.issues }} in {{ workspace }}", "<before.issues> in /w"),
            ("{{ before['issues'][0].title }}", "<before.issues[0].title>"),
            ("{% for issue in before.issues %}- {{ issue.title }}\n{% endfor %}", "- <before.issues[].title>\n"),
            ("{{ before.issues | length == 0 }} {{ state.seen }}", "False <state.seen>"),
            ("{% for a in before.issues %}{% for b in a %}{{ b }}{% endfor %}{% endfor %}", "<before.issues[][]>"),
            ("{% if before.issues == before.others %}a{% endif %}", ""),
            ("{{ before.issues + 1 }}{{ 'a' ~ before.issues }}", "<before.issues>a<before.issues>"),
            ("{% set all = before %}{{ all.files }}", "<before.files>"),
            ("{% if before.issues == 'x' %}a{% else %}b{% endif %}", "b"),
        ] {
            assert_eq!(planned(text).as_deref(), Ok(shown), "{text}");
        }
    }

    #[test]
    fn a_text_of_a_plan_is_rendered_with_its_files() {
        let texts = [("(prompt)", "{% include 'a.md' %} {{ before.n + 1 }}"), ("a.md", "A: {{ state }}")];
        let texts = texts.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        let templates = Templates::of_plan(&texts);
        let values = json!({ "before": { "n": 1 }, "state": [{ "a": "b" }] });
        let rendered = templates.late_engine(&values).render(&Template::named("(prompt)"));
        assert_eq!(rendered.map_err(|finding| finding.message).as_deref(), Ok("A: [{\"a\":\"b\"}] 2"));
        let wrong = json!({ "before": {}, "state": null });
        let finding = templates.engine(&wrong).render(&Template::named("(prompt)")).unwrap_err();
        assert_eq!((finding.code, finding.span.source.name.as_str()), ("render-failed", "(prompt)"));
    }
}
