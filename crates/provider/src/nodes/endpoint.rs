//! The URL of a provider. The URL often contains a key, so only scheme, host and port are shown.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
#[cfg(feature = "server")]
use serde_json::value::RawValue;
use thiserror::Error;
use ureq::Proxy;
use ureq::http::Uri;

/// Replacement of a secret in texts.
const HIDDEN: &str = "…";

/// Reason why a text is not a valid URL of a provider or not a valid HTTP header. The error does
/// not repeat the text, because it may contain a key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct EndpointError(&'static str);

impl EndpointError {
    /// Returns the reason as text. The text contains no part of the URL.
    pub fn as_str(&self) -> &'static str {
        self.0
    }
}

/// The URL of a provider, and the HTTP headers of requests to it.
///
/// User info, path and query of the URL are secrets, and so are the headers. `Display` and `Debug`
/// show only scheme, host and port. [`scrub`](Self::scrub) removes the secrets from any text.
///
/// ```
/// use chainsieve_provider::Endpoint;
/// let endpoint = Endpoint::new("https://mainnet.example/v3/0123456789abcdef")?;
/// assert_eq!(endpoint.to_string(), "https://mainnet.example");
/// # Ok::<(), chainsieve_provider::EndpointError>(())
/// ```
#[derive(Clone)]
pub struct Endpoint {
    /// The requested URL, without user info.
    url: String,
    shown: String,
    headers: Vec<(String, String)>,
    /// Strings that are removed from all texts, the longest first: a secret may contain another.
    secrets: Vec<String>,
    /// Strings that are removed from all texts where they are whole words.
    secret_words: Vec<String>,
}

/// Minimum length of a path segment that is hidden everywhere. Shorter segments are usually words
/// (`v3`, `mainnet`), whose removal would make messages unreadable. If a shorter segment contains a
/// digit, it may be a key, and is hidden where it is a whole word.
const SHORTEST_SEGMENT: usize = 10;
/// Minimum length of a query value, header value, user name or password that is hidden.
const SHORTEST_VALUE: usize = 4;

/// Parses a URL, as [`Endpoint::new`] does. `Display` hides secrets, so parsing the displayed text
/// gives an endpoint without the secrets.
impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(url: &str) -> Result<Self, EndpointError> {
        Self::new(url)
    }
}

impl Endpoint {
    /// Parses an http or https URL.
    ///
    /// # Errors
    /// Returns an [`EndpointError`] if the URL is invalid. The error does not repeat the URL.
    pub fn new(url: &str) -> Result<Self, EndpointError> {
        Self::read(url).map_err(EndpointError)
    }

    fn read(url: &str) -> Result<Self, &'static str> {
        let url = url.trim();
        let (scheme, rest) =
            url.split_once("://").ok_or("not a URL: http:// or https:// is missing")?;
        let scheme = scheme.to_ascii_lowercase();
        match scheme.as_str() {
            "http" | "https" => {}
            "ws" | "wss" => return Err("a WebSocket URL: give the http or https URL instead"),
            _ => return Err("neither an http nor an https URL"),
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let slash = if path.starts_with('/') { "" } else { "/" };
        let requested = format!("{scheme}://{host}{slash}{path}");
        let uri: Uri = requested.parse().map_err(
            |_| "not a URL: the host or the port is wrong, or a character is not allowed",
        )?;
        let name = uri.host().filter(|host| !host.is_empty()).ok_or("the URL has no host")?;
        let port = uri.port().map_or_else(String::new, |port| format!(":{port}"));
        let name: Vec<_> = name.split('.').map(shown_label).collect();
        let shown = format!("{scheme}://{}{port}", name.join("."));
        let mut endpoint = Self {
            url: requested.clone(),
            shown,
            headers: Vec::new(),
            secrets: Vec::new(),
            secret_words: Vec::new(),
        };
        endpoint.hide(url, SHORTEST_SEGMENT);
        endpoint.hide(&requested, SHORTEST_SEGMENT);
        let (segments, query) = path.split_once('?').unwrap_or((path, ""));
        endpoint.hide(segments, SHORTEST_SEGMENT);
        segments.split('/').for_each(|segment| endpoint.hide_word(segment));
        endpoint.hide(query, SHORTEST_SEGMENT);
        for pair in query.split('&') {
            endpoint.hide(pair.split_once('=').map_or(pair, |(_, value)| value), SHORTEST_VALUE);
        }
        uri.host().into_iter().flat_map(|host| host.split('.')).for_each(|label| {
            if shown_label(label) == HIDDEN {
                endpoint.hide(label, SHORTEST_SEGMENT);
            }
        });
        if let Some(user) = user {
            let user = percent_decoded(user);
            endpoint.hide(&user, SHORTEST_VALUE);
            user.split(':').for_each(|part| endpoint.hide(part, SHORTEST_VALUE));
            let credentials = BASE64_STANDARD.encode(user);
            endpoint.hide(&credentials, SHORTEST_VALUE);
            endpoint.headers.push(("Authorization".into(), format!("Basic {credentials}")));
        }
        Ok(endpoint)
    }

    /// Adds an HTTP header, `Name: value`, to each request. An earlier header of the same name is
    /// replaced.
    ///
    /// # Errors
    /// Returns an [`EndpointError`] if the header is invalid. The error does not repeat the header.
    pub fn with_header(self, header: &str) -> Result<Self, EndpointError> {
        self.add_header(header).map_err(EndpointError)
    }

    fn add_header(mut self, header: &str) -> Result<Self, &'static str> {
        let (name, value) = header.split_once(':').ok_or("a header has the form Name: value")?;
        let (name, value) = (name.trim(), value.trim());
        let in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(in_name) {
            return Err("the name of a header may contain only letters, digits and hyphens");
        }
        // A line break would add another header to the request. Tabs and bytes from 0x80, which
        // RFC 9110 allows, occur in no API key and are most likely a mistake.
        if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Err("the value of a header may contain only printable ASCII characters");
        }
        self.hide(value, SHORTEST_VALUE);
        value.split_whitespace().for_each(|word| self.hide_word(word));
        self.headers.retain(|(given, _)| !given.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        Ok(self)
    }

    /// Returns the URL for requests. The URL contains secrets: only the transport may use this URL.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the URL of a path of the server, which begins with a slash and may have a query. The URL
    /// contains secrets, like [`url`](Self::url).
    #[cfg(feature = "beacon")]
    pub(super) fn url_of(&self, path: &str) -> String {
        let (base, query) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let base = base.trim_end_matches('/');
        let mark = if query.is_empty() {
            ""
        } else if path.contains('?') {
            "&"
        } else {
            "?"
        };
        format!("{base}{path}{mark}{query}")
    }

    /// Returns the headers of each request. The headers are secrets: only the transport may use
    /// these headers.
    pub(super) fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// Returns `true` if the host is this machine: a loopback address or a `localhost` name.
    pub(super) fn is_of_this_machine(&self) -> bool {
        let uri: Option<Uri> = self.url.parse().ok();
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default().to_ascii_lowercase();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        address.map_or(host == "localhost" || host.ends_with(".localhost"), |ip| ip.is_loopback())
    }

    /// Returns `true` if `proxy` can read the requests: the URL is http, and not exempt from the
    /// proxy.
    pub(super) fn is_open_to(&self, proxy: &Proxy) -> bool {
        let uri: Option<Uri> = self.url.parse().ok();
        self.url.starts_with("http:") && !uri.is_some_and(|uri| proxy.is_no_proxy(&uri))
    }

    /// Returns a text with all secrets of this endpoint replaced by `…`. Providers repeat keys and
    /// URLs in their error messages.
    pub fn scrub(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), HIDDEN);
            }
        }
        for word in &self.secret_words {
            text = without_word(&text, word);
        }
        text
    }

    /// Returns the error of a node as JSON, with all secrets replaced in its texts.
    #[cfg(feature = "server")]
    pub(super) fn scrub_error(&self, error: &RawValue) -> Box<RawValue> {
        scrub_json(error, |text| self.scrub(text))
    }

    /// Returns the result of a node as JSON, with all secrets replaced in its texts. A short secret may occur
    /// in data by chance, so it is replaced only where it is a whole word.
    #[cfg(feature = "server")]
    pub(super) fn scrub_result(&self, result: &RawValue) -> Box<RawValue> {
        scrub_json(result, |text| {
            let mut text = text.to_owned();
            for secret in &self.secrets {
                text = if secret.len() >= SHORTEST_SEGMENT {
                    text.replace(secret.as_str(), HIDDEN)
                } else {
                    without_word(&text, secret)
                };
            }
            self.secret_words.iter().fold(text, |text, word| without_word(&text, word))
        })
    }

    /// Adds a word to the secrets if the word may be a key.
    fn hide_word(&mut self, word: &str) {
        self.hide(word, SHORTEST_SEGMENT);
        for word in [word.to_owned(), percent_decoded(word)] {
            let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
            if has_digit && (SHORTEST_VALUE..SHORTEST_SEGMENT).contains(&word.len()) {
                self.secret_words.push(word);
            }
        }
    }

    /// Adds a string of at least `shortest` bytes to the secrets, both in the written form and in
    /// the percent-decoded form.
    fn hide(&mut self, secret: &str, shortest: usize) {
        for secret in [secret.to_owned(), percent_decoded(secret)] {
            if secret.len() >= shortest && !self.secrets.contains(&secret) {
                self.secrets.push(secret);
            }
        }
        self.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    }
}

/// Replaces the strings of a JSON text, names of members included. All other bytes stay as they are.
#[cfg(feature = "server")]
fn scrub_json(json: &RawValue, scrub: impl Fn(&str) -> String + Clone) -> Box<RawValue> {
    let mut scrubbed = String::with_capacity(json.get().len());
    let mut rest = json.get();
    while let Some(start) = rest.find('"') {
        let (before, string) = rest.split_at(start);
        let mut is_escaped = false;
        let end = string.bytes().skip(1).position(|byte| {
            let is_end = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            is_end
        });
        // JSON has an end for each string.
        let (string, after) = string.split_at(end.map_or(string.len(), |end| end + 2));
        scrubbed.push_str(before);
        // A secret may be hidden by escapes, so the string is read. One that is no text, by a lone surrogate,
        // is replaced as a whole.
        let text = serde_json::from_str::<String>(string).ok();
        let clean = text.as_deref().map_or_else(|| HIDDEN.to_owned(), scrub.clone());
        if text.as_ref() == Some(&clean) {
            scrubbed.push_str(string);
        } else {
            scrubbed.push_str(&serde_json::Value::from(clean).to_string());
        }
        rest = after;
    }
    scrubbed.push_str(rest);
    RawValue::from_string(scrubbed).expect("strings were replaced by strings")
}

/// Hides a word in a text wherever no letter or digit is next to the word. Returns the new text.
fn without_word(text: &str, word: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut from = 0;
    for (at, found) in text.match_indices(word) {
        let (before, after) = (&text[..at], &text[at + found.len()..]);
        let is_part =
            before.ends_with(char::is_alphanumeric) || after.starts_with(char::is_alphanumeric);
        kept.push_str(&text[from..at]);
        kept.push_str(if is_part { found } else { HIDDEN });
        from = at + found.len();
    }
    kept + &text[from..]
}

/// Returns a label of a host name, or [`HIDDEN`] if the label looks like a key: some providers give
/// each user a host name that contains the key.
fn shown_label(label: &str) -> &str {
    let digits = label.bytes().filter(u8::is_ascii_digit).count();
    if label.len() >= 20 && digits >= 4 && !label.contains('-') { HIDDEN } else { label }
}

/// Decodes percent-encoded bytes. Returns the text unchanged if the result is not UTF-8.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = (first == b'%').then(|| after.get(..2)).flatten();
        let byte =
            digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scheme_host_and_port_are_shown() {
        let key = "k3yk3yk3yk3yk3y";
        for (url, shown) in [
            (format!("https://eth.example/v2/{key}"), "https://eth.example"),
            (format!("https://user:{key}@eth.example:8545"), "https://eth.example:8545"),
            (format!("http://{key}@127.0.0.1:8545/x"), "http://127.0.0.1:8545"),
            (format!("HTTPS://eth.example?apikey={key}#{key}"), "https://eth.example"),
            (format!("https://[::1]:8545/{key}"), "https://[::1]:8545"),
            (
                format!("https://0123456789abcdef01234567.rpc.example/{key}"),
                "https://….rpc.example",
            ),
        ] {
            let endpoint = Endpoint::new(&url).unwrap();
            assert_eq!(endpoint.to_string(), shown);
            assert_eq!(format!("{endpoint:?}"), format!("Endpoint({shown})"));
            let scrubbed = endpoint.scrub(&format!("at {url}: the key {key} is not known"));
            assert!(!scrubbed.contains(key), "{scrubbed}");
            assert!(scrubbed.ends_with("is not known"), "{scrubbed}");
        }
    }

    #[test]
    fn a_short_key_is_hidden_and_words_are_not() {
        let endpoint = Endpoint::new("https://eth.example/v3/mainnet/k3y1").unwrap();
        let (said, hidden) = ("k3y1: no key=k3y1 for k3y1,", "…: no key=… for …,");
        assert_eq!(endpoint.scrub(said), hidden);
        for words in ["v3 of mainnet", "0xk3y1", "k3y12", "ék3y1"] {
            assert_eq!(endpoint.scrub(words), words);
        }
    }

    #[test]
    #[cfg(feature = "server")]
    fn secrets_leave_json_however_they_are_written() {
        let endpoint = Endpoint::new("https://eth.example/v3/k3y1/k3yk3yk3yk3yk3y").unwrap();
        let scrubbed = |json: &str, scrub: fn(&Endpoint, &RawValue) -> Box<RawValue>| {
            scrub(&endpoint, &RawValue::from_string(json.to_owned()).unwrap()).get().to_owned()
        };
        for (error, clean) in [
            (r#"{"message":"key k3yk3yk3yk3yk3y"}"#, r#"{"message":"key …"}"#),
            (r#"{ "code" : -1, "data": "k3y1" }"#, r#"{ "code" : -1, "data": "…" }"#),
            (r#"["\u006b3yk3yk3yk3yk3y\"", "\\"]"#, r#"["…\"", "\\"]"#),
            (r#"{"k3yk3yk3yk3yk3y":12345678901234567890123}"#, r#"{"…":12345678901234567890123}"#),
            (r#"["at https:\/\/eth.example\/v3\/k3y1\/k3yk3yk3yk3yk3y."]"#, r#"["at …."]"#),
            (r#""\ud83d\ude00 é""#, r#""\ud83d\ude00 é""#),
            (r#"["\ud800 k3yk3yk3yk3yk3y"]"#, r#"["…"]"#),
            ("null", "null"),
        ] {
            assert_eq!(scrubbed(error, Endpoint::scrub_error), clean);
        }
        // A short secret is replaced where it is a word, and not within data.
        let result = r#"{"a":"k3y1","b":"0xk3y1","c":"x k3yk3yk3yk3yk3y"}"#;
        let clean = r#"{"a":"…","b":"0xk3y1","c":"x …"}"#;
        assert_eq!(scrubbed(result, Endpoint::scrub_result), clean);
    }

    #[test]
    fn what_is_no_url_is_not_repeated() {
        for (url, words) in [
            ("eth.example/s3cr3t", "http:// or https:// is missing"),
            ("wss://eth.example/s3cr3t", "a WebSocket"),
            ("ftp://eth.example/s3cr3t", "neither"),
            ("https:///s3cr3t", "not a URL"),
            ("https://user:s3cr3t@/", "not a URL"),
            ("https://eth example/s3cr3t", "not a URL"),
        ] {
            let error = Endpoint::new(url).unwrap_err().to_string();
            assert!(error.contains(words), "{url}: {error}");
        }
    }

    #[test]
    fn this_machine_is_told_from_others() {
        for url in [
            "http://localhost:1",
            "http://LOCALHOST",
            "http://127.0.0.1:1",
            "http://127.9.9.9",
            "http://[::1]:1",
            "http://user@a.localhost/x",
        ] {
            assert!(Endpoint::new(url).unwrap().is_of_this_machine(), "{url}");
        }
        for url in [
            "http://eth.example/127.0.0.1",
            "http://127.0.0.1.example",
            "http://[::2]",
            "http://localhost.example",
            "http://128.0.0.1",
            "http://localhost@eth.example",
        ] {
            assert!(!Endpoint::new(url).unwrap().is_of_this_machine(), "{url}");
        }
    }

    #[cfg(feature = "beacon")]
    #[test]
    fn a_path_follows_that_of_the_url_and_keeps_its_query() {
        let of = |url: &str, path: &str| Endpoint::new(url).unwrap().url_of(path);
        assert_eq!(of("http://a.example", "/eth/v1/x"), "http://a.example/eth/v1/x");
        assert_eq!(of("http://a.example/key/", "/eth?a=1"), "http://a.example/key/eth?a=1");
        assert_eq!(of("http://a.example/k?key=2", "/eth"), "http://a.example/k/eth?key=2");
        assert_eq!(of("http://a.example?key=2", "/eth?a=1"), "http://a.example/eth?a=1&key=2");
    }

    /// An example of RFC 7617, section 2.
    #[test]
    fn user_info_becomes_basic_authorization() {
        let endpoint = Endpoint::new("http://Aladdin:open%20sesame@eth.example").unwrap();
        let expected =
            ("Authorization".to_owned(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==".to_owned());
        assert_eq!(endpoint.headers(), [expected]);
        assert_eq!(endpoint.url(), "http://eth.example/");
    }

    #[test]
    fn headers_are_secret_too() {
        let endpoint = Endpoint::new("http://eth.example").unwrap();
        let endpoint = endpoint.with_header("X-Api-Key: 0123-4567-89ab").unwrap();
        assert_eq!(endpoint.scrub("no key 0123-4567-89ab"), "no key …");
        assert!(!format!("{endpoint:?}").contains("0123"));
        let endpoint = endpoint.with_header("authorization: Bearer abcdefghijkl").unwrap();
        assert_eq!(endpoint.scrub("abcdefghijkl?"), "…?");
        let endpoint = endpoint.with_header("authorization: Bearer s3cr3t").unwrap();
        assert_eq!(endpoint.scrub("Bearer: s3cr3t"), "Bearer: …");
        for header in ["s3cr3t", ": s3cr3t", "a b: s3cr3t", "a: s3cr3t\r\nb: c", "a: s3cr3té"] {
            let error = endpoint.clone().with_header(header).unwrap_err().to_string();
            assert!(!error.contains("s3cr3t"), "{error}");
        }
    }
}
