//! Renders texts before a run, when only some of the inputs are known.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use minijinja::Value;

use super::engine::{Engine, value};
use super::tags::has_tags;
use super::texts::{Template, TemplateText, Templates, TextOrigin};
use super::tracked_inputs::TrackedInputs;
use crate::diagnostic::Diagnostic;

/// Renders texts with the known values, and reports which results don't depend on the others.
#[derive(Debug)]
pub struct PartialRenderer<'a> {
    engine: Engine<'a>,
    inputs: Arc<TrackedInputs>,
}

/// The result of rendering a text before a run.
#[derive(Debug)]
pub struct PartialRender {
    /// The rendered text, or the finding.
    pub rendered: Result<String, Box<Diagnostic>>,
    /// Whether every run gives the same result, because no unknown value was read.
    pub is_final: bool,
}

impl Templates {
    /// A renderer for the valid texts. `values` are the variables as for [`Self::engine`], with a sample value for each
    /// input in `unknown`.
    pub fn partial_renderer(&self, values: &serde_json::Value, unknown: HashSet<String>) -> PartialRenderer<'_> {
        let is_shown = |name: &str| {
            let is_file = |text: &TemplateText| has_tags(&text.text) || matches!(text.origin, TextOrigin::File(_));
            !self.invalid.contains(name) && self.texts.get(name).is_some_and(is_file)
        };
        let size = values["inputs"].to_string().len() as u64;
        let inputs = Arc::new(TrackedInputs {
            values: value(&values["inputs"]),
            size,
            unknown,
            has_read_unknown: AtomicBool::new(false),
        });
        let variables = values.as_object().into_iter().flatten().map(|(name, part)| match name.as_str() {
            "inputs" => ("inputs", Value::from_dyn_object(inputs.clone())),
            name => (name, value(part)),
        });
        let engine = Engine::new(Value::from_pairs(variables), self, is_shown);
        PartialRenderer { engine, inputs }
    }
}

impl PartialRenderer<'_> {
    /// Renders a text.
    pub fn render(&mut self, template: &Template) -> PartialRender {
        self.inputs.has_read_unknown.store(false, Ordering::Relaxed);
        let rendered = self.engine.render(template);
        PartialRender { rendered, is_final: !self.inputs.has_read_unknown.load(Ordering::Relaxed) }
    }

    /// Whether the limits leave nothing for further texts.
    pub fn is_exhausted(&self) -> bool {
        self.engine.is_exhausted()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{node, values};
    use super::super::{Loader, TemplateVariables, TextRole};
    use super::*;

    fn foreseen(text: &str) -> PartialRender {
        let names =
            TemplateVariables { inputs: vec!["topic".to_owned(), "files".to_owned()], ..TemplateVariables::default() };
        let mut loader = Loader::new(None, &names);
        let node = node(text);
        let template = loader.text(&node.node, &node.value, TextRole::Prompt);
        let (templates, findings) = loader.finish();
        assert!(findings.is_empty(), "{findings:?}");
        assert!(templates.is_valid(&template), "{text}");
        templates.partial_renderer(&values("stand-in"), HashSet::from(["topic".to_owned()])).render(&template)
    }

    #[test]
    fn results_that_read_unknown_values_are_not_final() {
        for (text, is_sure) in [
            ("{{ workspace }}", true),
            ("{{ inputs.files | join(' ') }}", true),
            ("{{ inputs | length }} {{ inputs | list | length }}", true),
            ("{{ inputs.topic }}", false),
            ("{{ inputs['topic'] }}", false),
            ("{% if inputs.topic %}a{% endif %}", false),
            ("{{ 'topic' in inputs }}", false),
            ("{{ inputs }}", false),
            ("{% for name, value in inputs | items %}{{ name }}{% endfor %}", false),
            ("{% if false %}{{ inputs.topic }}{% endif %}", true),
        ] {
            let foreseen = foreseen(text);
            assert!(foreseen.rendered.is_ok(), "{text}: {:?}", foreseen.rendered);
            assert_eq!(foreseen.is_final, is_sure, "{text}");
        }
    }

    #[test]
    fn it_renders_the_same_as_a_run() {
        let text =
            "{{ inputs }} {% for name in inputs %}{{ name }}={{ inputs[name] }} {% endfor %}{{ inputs is mapping }}";
        let names =
            TemplateVariables { inputs: vec!["topic".to_owned(), "files".to_owned()], ..TemplateVariables::default() };
        let mut loader = Loader::new(None, &names);
        let node = node(text);
        let template = loader.text(&node.node, &node.value, TextRole::Prompt);
        let templates = loader.finish().0;
        let values = json!({ "inputs": { "topic": "a", "files": ["b", "c"], "n": 1 } });
        let ahead = templates.partial_renderer(&values, HashSet::new()).render(&template);
        assert_eq!(ahead.rendered.unwrap(), templates.engine(&values).render(&template).unwrap());
    }
}
