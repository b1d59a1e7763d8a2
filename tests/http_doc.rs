//! `docs/HTTP.md` says what the OpenAPI document says, which is made from what is served.
#![allow(clippy::unwrap_used, reason = "a test says so by panicking")]
#![cfg(feature = "http")]

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

#[test]
fn the_page_is_what_the_document_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/HTTP.md");
    let page = page(&serde_json::to_value(tenure::http::openapi()).unwrap());
    if std::env::var_os("TENURE_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/HTTP.md does not say what is served: write it anew with \
         `TENURE_BLESS=1 cargo test --test http_doc`, and read what changed"
    );
}

fn page(document: &Value) -> String {
    let mut page = String::from(
        "# HTTP\n\nWritten by `tests/http_doc.rs` from the OpenAPI document, which a host serves at `/openapi.json`;\n\
         write it anew with `TENURE_BLESS=1 cargo test --test http_doc`.\n\n",
    );
    page.push_str(document["info"]["description"].as_str().unwrap().trim());
    page.push_str("\n\n## Operations\n");
    for tag in document["tags"].as_array().unwrap() {
        let name = tag["name"].as_str().unwrap();
        writeln!(page, "\n### {name}: {}", text(&tag["description"])).unwrap();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                if operation["tags"][0] == name {
                    write_operation(&mut page, method, path, operation);
                }
            }
        }
    }
    page.push_str(
        "\n## Shapes\n\nA field with a question mark may be left out; one that may be `null` says so.\n",
    );
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        write_shape(&mut page, name, schema);
    }
    page
}

fn write_operation(page: &mut String, method: &str, path: &str, operation: &Value) {
    writeln!(page, "\n#### `{} {path}`\n", method.to_ascii_uppercase()).unwrap();
    writeln!(page, "{}.", text(&operation["summary"])).unwrap();
    if let Some(more) = operation["description"].as_str() {
        writeln!(page, "{more}").unwrap();
    }
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let parameters: Vec<&Value> = parameters.filter(|parameter| parameter["in"] != "path").collect();
    if !parameters.is_empty() {
        page.push_str("\n| parameter | in | |\n|---|---|---|\n");
    }
    for parameter in parameters {
        let (name, place) = (text(&parameter["name"]), text(&parameter["in"]));
        let schema = kind(&parameter["schema"]);
        writeln!(page, "| `{name}` | {place} | {schema}: {} |", text(&parameter["description"])).unwrap();
    }
    if let Some(content) = operation["requestBody"]["content"].as_object() {
        let needed = if operation["requestBody"]["required"] == true { "" } else { ", may be left out" };
        let bodies: Vec<String> = content.values().map(|body| kind(&body["schema"])).collect();
        writeln!(page, "\nBody: {}{needed}.", bodies.join(" or ")).unwrap();
    }
    page.push_str("\n| status | answer |\n|---|---|\n");
    let mut brief = Vec::new();
    for (status, response) in operation["responses"].as_object().unwrap() {
        let content: Vec<String> = response["content"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(media_type, content)| match media_type.as_str() {
                "application/json" => kind(&content["schema"]),
                other => format!("`{other}`"),
            })
            .collect();
        // What every operation may answer is told once, above.
        let particular = status == "409" || (status == "403" && text(&operation["tags"][0]) == "agents");
        if content == ["`application/problem+json`"] && !particular {
            brief.push(status.as_str());
            continue;
        }
        let said = [text(&response["description"]), &content.join(", ")].join(": ");
        writeln!(page, "| {status} | {} |", said.trim_matches([':', ' '])).unwrap();
    }
    if !brief.is_empty() {
        writeln!(page, "| {} | a problem |", brief.join(", ")).unwrap();
    }
}

fn write_shape(page: &mut String, name: &str, schema: &Value) {
    writeln!(page, "\n### {name}\n").unwrap();
    if let Some(said) = schema["description"].as_str() {
        writeln!(page, "{said}\n").unwrap();
    }
    let Some(fields) = schema["properties"].as_object() else {
        writeln!(page, "{}", kind(schema)).unwrap();
        return;
    };
    page.push_str("| field | | |\n|---|---|---|\n");
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (field, about) in fields {
        let left_out = if required.contains(&Value::from(field.as_str())) { "" } else { "?" };
        writeln!(page, "| `{field}`{left_out} | {} | {} |", kind(about), text(&about["description"]))
            .unwrap();
    }
}

/// What a schema is, in a few words.
fn kind(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap();
        return format!("[{name}](#{})", name.to_ascii_lowercase());
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let mut kinds: Vec<String> = choices.iter().map(kind).collect();
        // What it is comes before that it may be nothing.
        kinds.sort_by_key(|kind| kind == "null");
        return kinds.join(" or ");
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<String> =
            words.iter().filter_map(Value::as_str).map(|word| format!("`{word}`")).collect();
        return words.join(", ");
    }
    let one = |name: &str| match name {
        "array" => format!("list of {}", kind(&schema["items"])),
        "string" if schema["format"] == "date-time" => "instant".to_owned(),
        "string" => "text".to_owned(),
        other => other.to_owned(),
    };
    match &schema["type"] {
        Value::String(name) => one(name),
        Value::Array(names) => {
            names.iter().filter_map(Value::as_str).map(one).collect::<Vec<_>>().join(" or ")
        }
        _ => "anything".to_owned(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
