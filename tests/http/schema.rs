//! Holds every answer of these tests against the document: its status is named there, and its JSON is what is
//! described, no field more or less.

use std::sync::OnceLock;

use serde_json::Value;

/// The document.
pub(crate) fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| serde_json::to_value(tenure::http::openapi()).unwrap())
}

/// Every operation: its path, its method, and what is said of it.
pub(crate) fn operations() -> Vec<(&'static str, &'static str, &'static Value)> {
    let paths = document()["paths"].as_object().unwrap();
    let methods = |path: &'static str, item: &'static Value| {
        item.as_object().unwrap().iter().map(move |(method, operation)| (path, method.as_str(), operation))
    };
    paths.iter().flat_map(|(path, item)| methods(path, item)).collect()
}

/// The operation that serves a path, if there is one.
pub(crate) fn operation(method: &str, path: &str) -> Option<(&'static str, &'static Value)> {
    let path = path.split('?').next().unwrap_or_default();
    let mut found: Vec<(&'static str, &'static Value)> = operations()
        .into_iter()
        .filter(|(template, of, _)| of.eq_ignore_ascii_case(method) && matches(template, path))
        .map(|(template, _, operation)| (template, operation))
        .collect();
    // A word is more particular than a name.
    found.sort_by_key(|(template, _)| template.matches('{').count());
    found.first().copied()
}

fn matches(template: &str, path: &str) -> bool {
    if let Some(folder) = template.strip_suffix("/workspace/{path}") {
        return path
            .split_once("/workspace/")
            .is_some_and(|(run, file)| !file.is_empty() && matches(folder, run));
    }
    let (wanted, found): (Vec<&str>, Vec<&str>) = (template.split('/').collect(), path.split('/').collect());
    let same =
        |(wanted, found): (&&str, &&str)| wanted == found || (wanted.starts_with('{') && !found.is_empty());
    wanted.len() == found.len() && wanted.iter().zip(&found).all(same)
}

/// That an answer is one that is described.
#[track_caller]
pub(crate) fn check(method: &str, path: &str, status: u16, media_type: &str, json: &Value) {
    let Some((template, operation)) = operation(method, path) else {
        assert!(matches!(status, 404 | 405 | 401 | 403 | 421 | 400), "{method} {path}: {status}");
        return;
    };
    let response = &operation["responses"][status.to_string()];
    assert!(response.is_object(), "{method} {template}: {status} is not described: {json}");
    let bare = media_type.split(';').next().unwrap_or_default();
    let Some(content) = response["content"].as_object().filter(|content| !content.is_empty()) else {
        assert!(json.is_null(), "{method} {template} {status}: {json}");
        return;
    };
    if template.ends_with("{path}") && status < 300 {
        return;
    }
    let schema = content.get(bare).unwrap_or_else(|| panic!("{method} {template} {status}: {media_type:?}"));
    if bare.ends_with("json") {
        let mut wrong = Vec::new();
        compare(&schema["schema"], json, "$", &mut wrong);
        assert!(wrong.is_empty(), "{method} {template} {status}: {wrong:?}: {json}");
    }
}

fn compare(schema: &Value, value: &Value, place: &str, wrong: &mut Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let found = document().pointer(reference.trim_start_matches('#'));
        return compare(found.expect(reference), value, place, wrong);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let fits = |choice: &&Value| {
            let mut problems = Vec::new();
            compare(choice, value, place, &mut problems);
            problems.is_empty()
        };
        if !choices.iter().any(|choice| fits(&choice)) {
            // What does not fit is told by the choice that is an object.
            compare(choices.last().unwrap(), value, place, wrong);
        }
        return;
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => return,
    };
    if !types.iter().any(|wanted| is(wanted, value)) {
        wrong.push(format!("{place} is no {types:?}"));
        return;
    }
    if let Some(words) = schema["enum"].as_array().filter(|_| !value.is_null())
        && !words.contains(value)
    {
        wrong.push(format!("{place} is none of {words:?}"));
    }
    if let Value::Array(items) = value {
        for (n, item) in items.iter().enumerate() {
            compare(&schema["items"], item, &format!("{place}[{n}]"), wrong);
        }
    }
    compare_fields(schema, value, place, wrong);
}

fn compare_fields(schema: &Value, value: &Value, place: &str, wrong: &mut Vec<String>) {
    let Value::Object(fields) = value else { return };
    for name in schema["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(name.as_str().unwrap()) {
            wrong.push(format!("{place}.{name} is missing"));
        }
    }
    for (name, value) in fields {
        let known = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
        match known {
            Some(schema) => compare(schema, value, &format!("{place}.{name}"), wrong),
            None => wrong.push(format!("{place}.{name} is not described")),
        }
    }
}

fn is(wanted: &str, value: &Value) -> bool {
    match wanted {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("{other}"),
    }
}
