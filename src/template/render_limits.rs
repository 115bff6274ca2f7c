//! Limits the sizes of values while a template is rendered. The engine limits the number of steps only: doubling a text
//! again and again takes few steps and all memory.
//!
//! Every value that an operator, filter, function or literal produces is measured, and the sizes are added up. Filters
//! that can produce a huge value in one step estimate its size first.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use minijinja::value::{DynObject, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, Expression, Output, State, Value, context, filters, functions, tests};

use super::placeholder::Placeholder;
use super::tracked_inputs::TrackedInputs;
use crate::sync::IgnorePoison;

/// The filters that [`super::instrument`] puts into templates.
pub(super) const CHECK: &str = "legwork_check";
pub(super) const READ: &str = "legwork_read";
pub(super) const FOLD: &str = "legwork_fold";
pub(super) const ADD_TEXT: &str = "legwork_add_text";

/// The greatest size of a value with its contents, in bytes.
const MAX_VALUE: u64 = 8 * MIB;

/// The greatest size of all values that are produced, in bytes. It bounds the memory for rendering.
const MAX_WORK: u64 = 128 * MIB;

/// The greatest nesting depth of lists and mappings.
const MAX_NESTED: usize = 64;

/// The greatest width, precision or count in a call of a filter.
const MAX_WIDTH: u64 = 10_000;

/// The size of a value in addition to its text.
const VALUE_OVERHEAD: u64 = 32;

/// Reading a value costs this fraction of producing one.
const READ_COST_DIVISOR: u64 = 8;

const MIB: u64 = 1024 * 1024;

/// The limit that was exceeded.
#[derive(Debug, Clone, Copy)]
pub(super) enum ExceededLimit {
    Value,
    Work,
    Depth,
    Width,
}

impl ExceededLimit {
    /// The message and the help of the finding.
    pub(super) fn message_and_help(self) -> (String, &'static str) {
        let shorter = "give shorter inputs, or paths of files that an agent can read";
        match self {
            Self::Value => (format!("a value becomes larger than {} MiB here", MAX_VALUE / MIB), shorter),
            Self::Work => (
                format!("rendering produces more than {} MiB of text", MAX_WORK / MIB),
                "loop over fewer items, and don't build a long text piece by piece",
            ),
            Self::Depth => {
                (format!("lists and mappings nest deeper than {MAX_NESTED} levels here"), "use a flatter structure")
            }
            Self::Width => {
                (format!("a width, precision or count is greater than {MAX_WIDTH}"), "write a smaller number")
            }
        }
    }
}

/// The sizes that one engine has left.
#[derive(Debug)]
pub(super) struct RenderLimits {
    left: AtomicU64,
    /// Whether lists and mappings are printed as JSON.
    pub(super) prints_json: AtomicBool,
    exceeded: Mutex<Option<ExceededLimit>>,
}

impl Default for RenderLimits {
    fn default() -> Self {
        Self { left: AtomicU64::new(MAX_WORK), prints_json: AtomicBool::new(false), exceeded: Mutex::default() }
    }
}

impl RenderLimits {
    /// Forgets all that was used.
    pub(super) fn reset(&self) {
        self.left.store(MAX_WORK, Ordering::Relaxed);
        self.prints_json.store(false, Ordering::Relaxed);
        self.take_exceeded();
    }

    /// The limit that was exceeded since the last call.
    pub(super) fn take_exceeded(&self) -> Option<ExceededLimit> {
        self.exceeded.lock().ignore_poison().take()
    }

    /// Whether nothing is left.
    pub(super) fn is_exhausted(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    fn fail(&self, exceeded: ExceededLimit) -> Error {
        *self.exceeded.lock().ignore_poison() = Some(exceeded);
        Error::new(ErrorKind::InvalidOperation, "too large")
    }

    fn charge(&self, size: u64) -> Result<(), Error> {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(size), Ordering::Relaxed);
        if left < size { Err(self.fail(ExceededLimit::Work)) } else { Ok(()) }
    }

    /// Fails for a size greater than a value may have.
    fn check_value_size(&self, size: u64) -> Result<(), Error> {
        if size > MAX_VALUE { Err(self.fail(ExceededLimit::Value)) } else { Ok(()) }
    }

    fn width(&self, width: u64) -> Result<(), Error> {
        if width > MAX_WIDTH { Err(self.fail(ExceededLimit::Width)) } else { Ok(()) }
    }

    /// The size of a value with its contents.
    fn measure(&self, value: &Value) -> Result<u64, Error> {
        let mut size = 0;
        measure(value, MAX_NESTED, &mut size).map_err(|exceeded| self.fail(exceeded))?;
        Ok(size)
    }

    fn measure_all(&self, values: &[Value]) -> Result<u64, Error> {
        let mut size = 0;
        for value in values {
            size += self.measure(value)?;
        }
        Ok(size)
    }

    /// Charges for a value that was produced. A lazy sequence is evaluated now, so that its size is known.
    fn check(&self, value: Value) -> Result<Value, Error> {
        let size = self.measure(&value)?;
        self.charge(size)?;
        if value.kind() == ValueKind::Iterable {
            return Ok(value.try_iter()?.collect::<Vec<_>>().into());
        }
        Ok(value)
    }

    /// Charges for a value that is read.
    fn read(&self, value: Value) -> Result<Value, Error> {
        let size = self.measure(&value)?;
        self.charge(size / READ_COST_DIVISOR)?;
        Ok(value)
    }

    /// The result of a chain of operators.
    fn fold(&self, operands: &Value, signs: &str) -> Result<Value, Error> {
        let operands: Vec<Value> = operands.try_iter()?.collect();
        let unknown = operands.iter().find(|operand| operand.downcast_object_ref::<Placeholder>().is_some());
        if let Some(unknown) = unknown.filter(|_| signs.bytes().any(|sign| sign != b'~')) {
            return Ok(unknown.clone());
        }
        for operand in &operands {
            // Fails with the engine's own message for undefined values.
            if operand.is_undefined() {
                operand.get_attr("")?;
            }
        }
        // Joined in one step, because a long chain would copy its beginning again and again.
        if signs.bytes().all(|sign| sign == b'~') {
            let size = self.measure_all(&operands)?;
            self.check_value_size(size)?;
            return self.check(operands.iter().map(Value::to_string).collect::<String>().into());
        }
        let mut operands = operands.into_iter();
        let mut result = operands.next().unwrap_or_default();
        for (sign, right) in signs.chars().zip(operands) {
            result = self.operate(sign, result, right)?;
        }
        Ok(result)
    }

    fn operate(&self, sign: char, left: Value, right: Value) -> Result<Value, Error> {
        let is_plain = |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool | ValueKind::None);
        if !(is_plain(&left) && is_plain(&right)) {
            let (one, other) = (self.measure(&left)?, self.measure(&right)?);
            let times = |value: &Value, size: u64, count: &Value| {
                let size = value.as_str().map_or(size, |text| text.len() as u64);
                size.saturating_mul(count.as_usize().map_or(1, |count| count as u64))
            };
            self.check_value_size(match sign {
                '*' => times(&left, one, &right).max(times(&right, other, &left)),
                _ => one + other,
            })?;
        }
        static OPERATORS: LazyLock<Vec<(char, Expression<'static, 'static>)>> = LazyLock::new(|| {
            static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(Environment::new);
            let all = [("+", "+"), ("-", "-"), ("*", "*"), ("/", "/"), (":", "//"), ("%", "%"), ("~", "~")];
            let compile = |(sign, operator): (&str, &str)| {
                let expression = ENVIRONMENT.compile_expression_owned(format!("left {operator} right")).ok()?;
                Some((sign.chars().next()?, expression))
            };
            all.into_iter().filter_map(compile).collect()
        });
        let operator = OPERATORS.iter().find(|(known, _)| *known == sign).map(|(_, operator)| operator);
        let operator = operator.ok_or_else(|| Error::from(ErrorKind::InvalidOperation))?;
        let result = operator.eval(context! { left, right });
        // Without the place in the helper's own expression.
        let result =
            result.map_err(|error| Error::new(error.kind(), error.detail().map_or_else(String::new, str::to_owned)))?;
        self.check(result)
    }

    /// Prints a value.
    pub(super) fn print(&self, out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
        if value.downcast_object_ref::<CountedTextMarker>().is_some() {
            return Ok(());
        }
        let size = self.measure(value)?;
        self.charge(size)?;
        let is_compound = matches!(value.kind(), ValueKind::Seq | ValueKind::Map);
        if is_compound && self.prints_json.load(Ordering::Relaxed) {
            return out.write_str(&to_json(value).to_string()).map_err(Error::from);
        }
        minijinja::escape_formatter(out, state, value)
    }

    /// Replaces an environment's filters, tests and functions with ones that keep the limits.
    pub(super) fn install(self: &Arc<Self>, environment: &mut Environment<'_>) {
        for (name, filter, estimate) in bounded_filters() {
            let limits = self.clone();
            environment.add_filter(name, move |state: &mut State<'_, '_>, arguments: Rest<ValueOrKwargs>| {
                let arguments = arguments.into_values();
                if let Some(unknown) = arguments.first().and_then(Value::downcast_object_ref::<Placeholder>) {
                    return Ok(unknown.filtered(name));
                }
                let size = limits.measure_all(&arguments)?;
                limits.charge(VALUE_OVERHEAD + size / READ_COST_DIVISOR)?;
                limits.check_value_size(estimate(&limits, &arguments, size)?)?;
                let result = filter.call(state, &arguments)?;
                // The engine's result refers to the original mappings, and searches them one by one.
                if name == "chain" && result.kind() == ValueKind::Map {
                    let pairs = result.as_object().and_then(DynObject::try_iter_pairs).into_iter().flatten();
                    return limits.check(Value::from_pairs(pairs));
                }
                if name == "chain" {
                    return limits.check(result.try_iter()?.collect::<Vec<_>>().into());
                }
                limits.check(result)
            });
        }
        for (name, test) in bounded_tests() {
            let limits = self.clone();
            environment.add_test(name, move |state: &mut State<'_, '_>, arguments: Rest<ValueOrKwargs>| {
                let arguments = arguments.into_values();
                limits.charge(limits.measure_all(&arguments)? / READ_COST_DIVISOR)?;
                test.call(state, &arguments)
            });
        }
        let all = [
            ("range", Value::from_function(functions::range)),
            ("dict", Value::from_function(functions::dict)),
            ("namespace", Value::from_function(functions::namespace)),
        ];
        for (name, function) in all {
            let limits = self.clone();
            environment.add_function(name, move |state: &mut State<'_, '_>, arguments: Rest<ValueOrKwargs>| {
                let arguments = arguments.into_values();
                limits.charge(limits.measure_all(&arguments)?)?;
                limits.check(function.call(state, &arguments)?)
            });
        }
        let limits = self.clone();
        environment.add_filter(CHECK, move |value: Value| limits.check(value));
        let limits = self.clone();
        environment.add_filter(READ, move |value: Value| limits.read(value));
        let limits = self.clone();
        environment.add_filter(FOLD, move |operands: Value, signs: &str| limits.fold(&operands, signs));
        let limits = self.clone();
        environment
            .add_filter(ADD_TEXT, move |size: u64| limits.charge(size).map(|()| Value::from_object(CountedTextMarker)));
    }
}

/// The result of counting a text of the template. It prints as nothing.
#[derive(Debug)]
struct CountedTextMarker;

impl minijinja::value::Object for CountedTextMarker {
    fn repr(self: &Arc<Self>) -> minijinja::value::ObjectRepr {
        minijinja::value::ObjectRepr::Plain
    }
}

/// A value as JSON. Its depth was measured.
fn to_json(value: &Value) -> serde_json::Value {
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => serde_json::Value::Null,
        ValueKind::Bool => value.is_true().into(),
        ValueKind::Number => match (i64::try_from(value.clone()), f64::try_from(value.clone())) {
            (Ok(whole), _) => whole.into(),
            (_, Ok(number)) => number.into(),
            _ => value.to_string().into(),
        },
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter().map(|items| items.map(|item| to_json(&item)).collect()).unwrap_or_default()
        }
        ValueKind::Map => {
            let pairs = value.as_object().and_then(DynObject::try_iter_pairs).into_iter().flatten();
            pairs.map(|(key, item)| (key.to_string(), to_json(&item))).collect::<serde_json::Map<_, _>>().into()
        }
        _ => value.to_string().into(),
    }
}

/// Adds the size of a value to `size`, and stops when that is too large.
fn measure(value: &Value, levels: usize, size: &mut u64) -> Result<(), ExceededLimit> {
    *size += VALUE_OVERHEAD + value.as_str().map_or(0, str::len) as u64;
    if *size > MAX_VALUE {
        return Err(ExceededLimit::Value);
    }
    let Some(object) = value.as_object() else {
        *size += value.as_bytes().filter(|_| value.as_str().is_none()).map_or(0, <[u8]>::len) as u64;
        return Ok(());
    };
    if value.downcast_object_ref::<Placeholder>().is_some() {
        return Ok(());
    }
    if let Some(inputs) = value.downcast_object_ref::<TrackedInputs>() {
        *size += inputs.size;
        return Ok(());
    }
    let Some(levels) = levels.checked_sub(1) else { return Err(ExceededLimit::Depth) };
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            for item in object.try_iter().into_iter().flatten() {
                measure(&item, levels, size)?;
            }
        }
        ValueKind::Map => {
            for (key, item) in object.try_iter_pairs().into_iter().flatten() {
                measure(&key, levels, size)?;
                measure(&item, levels, size)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Estimates the size of a filter's result from its arguments and their size.
pub(super) type SizeEstimate = fn(&RenderLimits, &[Value], u64) -> Result<u64, Error>;

/// The result is about as large as the arguments.
fn same_size(_: &RenderLimits, _: &[Value], size: u64) -> Result<u64, Error> {
    Ok(size)
}

/// Each character of a text becomes an item.
fn char_list_size(_: &RenderLimits, arguments: &[Value], size: u64) -> Result<u64, Error> {
    Ok(size + text(arguments, 0).chars().count() as u64 * VALUE_OVERHEAD)
}

fn text(arguments: &[Value], at: usize) -> &str {
    arguments.get(at).and_then(Value::as_str).unwrap_or_default()
}

/// Every number among the arguments is a width or a count.
fn largest_number(limits: &RenderLimits, arguments: &[Value]) -> Result<u64, Error> {
    let mut greatest = 0;
    for argument in arguments.iter().skip(1) {
        let named = argument.is_kwargs().then(|| argument.as_object()?.try_iter_pairs()).flatten();
        let named = named.into_iter().flatten().map(|(_, value)| value);
        for number in named.chain([argument.clone()]).filter_map(|value| value.as_usize()) {
            limits.width(number as u64)?;
            greatest = greatest.max(number as u64);
        }
    }
    Ok(greatest)
}

fn indented(limits: &RenderLimits, arguments: &[Value], size: u64) -> Result<u64, Error> {
    let lines = text(arguments, 0).matches('\n').count() as u64 + 1;
    Ok(size + lines.saturating_mul(largest_number(limits, arguments)?.max(4)))
}

fn grouped(limits: &RenderLimits, arguments: &[Value], size: u64) -> Result<u64, Error> {
    // The fill value is measured once for each time that it is in a group.
    let filler = arguments.get(2).map_or(Ok(0), |filler| limits.measure(filler))?;
    let count = largest_number(limits, arguments)?;
    Ok(char_list_size(limits, arguments, size)? + count.saturating_mul(VALUE_OVERHEAD + filler))
}

fn replaced(_: &RenderLimits, arguments: &[Value], size: u64) -> Result<u64, Error> {
    let plain: Vec<String> = arguments.iter().take(3).map(Value::to_string).collect();
    let [value, from, to] = plain.as_slice() else { return Ok(size) };
    let found = if from.is_empty() { value.chars().count() + 1 } else { value.matches(from.as_str()).count() };
    Ok(size + (found as u64).saturating_mul(to.len() as u64))
}

fn joined(_: &RenderLimits, arguments: &[Value], size: u64) -> Result<u64, Error> {
    let Some(value) = arguments.first() else { return Ok(size) };
    let items = value.len().unwrap_or_default() as u64;
    // The separator is the only text among the arguments after the items.
    let joiners = arguments.iter().skip(1).map(|argument| {
        let mut size = 0;
        let _ = measure(argument, 2, &mut size);
        size
    });
    Ok(size + items.saturating_mul(joiners.sum()))
}

fn divided(_: &RenderLimits, arguments: &[Value], size: u64) -> Result<u64, Error> {
    let value = text(arguments, 0);
    let pieces = match arguments.get(1).and_then(Value::as_str) {
        Some(between) if !between.is_empty() => value.matches(between).count(),
        Some(_) => value.chars().count() + 2,
        None => value.split_whitespace().count(),
    };
    Ok(size + pieces as u64 * VALUE_OVERHEAD)
}

fn lined(_: &RenderLimits, arguments: &[Value], size: u64) -> Result<u64, Error> {
    Ok(size + text(arguments, 0).matches('\n').count() as u64 * VALUE_OVERHEAD)
}

/// Each level adds indentation.
fn pretty(_: &RenderLimits, _: &[Value], size: u64) -> Result<u64, Error> {
    Ok(size.saturating_mul(4))
}

fn formatted(limits: &RenderLimits, arguments: &[Value], size: u64) -> Result<u64, Error> {
    let format = text(arguments, 0);
    // A named value can be used several times.
    let mut total = size.saturating_mul(1 + format.matches("%(").count() as u64);
    for field in format.split('%').skip(1) {
        let spec = field.strip_prefix('(').and_then(|field| field.split_once(')')).map_or(field, |(_, spec)| spec);
        let spec = spec.trim_start_matches(['#', '0', '-', ' ', '+']);
        let spec = &spec[..spec.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(spec.len())];
        for width in spec.split('.').filter(|width| !width.is_empty()) {
            let width = width.parse().unwrap_or(u64::MAX);
            limits.width(width)?;
            total = total.saturating_add(width);
        }
    }
    Ok(total)
}

/// The filters that are measured, with their other names and the estimate of their results.
pub(super) fn bounded_filters() -> Vec<(&'static str, Value, SizeEstimate)> {
    macro_rules! table {
        ($($estimate:ident: $($filter:ident $($alias:literal)*),+;)*) => {
            vec![$($(
                $(($alias, Value::from_function(filters::$filter), $estimate as SizeEstimate),)*
                (stringify!($filter), Value::from_function(filters::$filter), $estimate as SizeEstimate),
            )+)*]
        };
    }
    table! {
        same_size: capitalize, dictsort, escape "e", float, int, items, last, length "count", lower, max, min, reverse,
            round, string, sum, title, trim, upper;
        char_list_size: chain, groupby, list, map, reject, rejectattr, select, selectattr, sort, unique, zip;
        divided: split;
        formatted: format;
        grouped: batch, slice;
        indented: indent;
        joined: join;
        lined: lines;
        pretty: pprint;
        replaced: replace;
    }
}

/// Tests that read more of a value than its type.
fn bounded_tests() -> Vec<(&'static str, Value)> {
    macro_rules! table {
        ($($test:ident $($name:literal)+,)*) => {
            vec![$($(($name, Value::from_function(tests::$test)),)+)*]
        };
    }
    table! {
        is_eq "eq" "equalto" "==",
        is_ne "ne" "!=",
        is_lt "lt" "lessthan" "<",
        is_le "le" "<=",
        is_gt "gt" "greaterthan" ">",
        is_ge "ge" ">=",
        is_in "in",
        is_startingwith "startingwith",
        is_endingwith "endingwith",
        is_lower "lower",
        is_upper "upper",
    }
}
