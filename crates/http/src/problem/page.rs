//! A refusal as a page, for people whose browser has sent a form.

/// The page. Everything in it is escaped; it loads nothing.
pub(super) fn write(language: &str, title: &str, detail: &str, instance: &str) -> String {
    let (title, detail, instance) = (escape(title), escape(detail), escape(instance));
    format!(
        r#"<!doctype html>
<html lang="{language}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>body{{font:1.1em/1.5 system-ui,sans-serif;max-width:34em;margin:4em auto;padding:0 1em}}small{{opacity:.6}}</style>
</head><body><main><h1>{title}</h1><p>{detail}</p><p><small>{instance}</small></p></main></body></html>
"#
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
