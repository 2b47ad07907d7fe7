//! A client that signs its requests by AWS Signature Version 4, or deliberately not quite so.

use crate::rig::{Answer, Client};
use dcs_testkit::hex;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::time::{SystemTime, UNIX_EPOCH};

/// A user.
#[derive(Clone)]
pub struct Signer {
    pub access: String,
    pub secret: String,
    /// Service, `s3` unless a test wants another.
    pub service: &'static str,
}

pub fn signer(access: &str) -> Signer {
    Signer { access: access.into(), secret: format!("secret-of-{access}"), service: "s3" }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// Returns the current time as signatures write it: `20260102T030405Z`.
fn date() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let text = httpdate::fmt_http_date(UNIX_EPOCH + std::time::Duration::from_secs(seconds));
    // Sun, 06 Nov 1994 08:49:37 GMT
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|month| *month == &text[8..11]).unwrap() + 1;
    let time = text[17..25].replace(':', "");
    format!("{}{month:02}{}T{time}Z", &text[12..16], &text[5..7])
}

impl Signer {
    fn scope(&self, date: &str) -> String {
        format!("{}/us-east-1/{}/aws4_request", &date[..8], self.service)
    }

    fn signature(&self, date: &str, canonical: &str) -> String {
        let scope = self.scope(date);
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
        let first = format!("AWS4{}", self.secret).into_bytes();
        let words = [&date[..8], "us-east-1", self.service, "aws4_request"];
        let key = words.iter().fold(first, |key, word| mac(&key, word));
        hex(&mac(&key, &text))
    }

    /// Returns the fields of a request that is signed in its header, which covers all of them.
    pub fn sign(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Vec<(String, String)> {
        self.sign_but(method, target, fields, body, &[])
    }

    /// Signs like [`Signer::sign`], but the signature does not cover these.
    pub fn sign_but(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
        left_out: &[&str],
    ) -> Vec<(String, String)> {
        self.sign_payload(method, target, fields, &hex(&Sha256::digest(body)), left_out)
    }

    /// Signs like [`Signer::sign_but`], with any word for the body.
    pub fn sign_payload(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        payload: &str,
        left_out: &[&str],
    ) -> Vec<(String, String)> {
        let date = date();
        let own = [("x-amz-date", date.as_str()), ("x-amz-content-sha256", payload)];
        let all: Vec<_> = own.into_iter().chain(fields.iter().copied()).collect();
        let mut signed: Vec<(String, &str)> =
            all.iter().map(|(name, value)| (name.to_ascii_lowercase(), *value)).collect();
        signed.push(("host".into(), "localhost"));
        signed.retain(|(name, _)| !left_out.contains(&name.as_str()));
        signed.sort();
        let names: Vec<&str> = signed.iter().map(|(name, _)| name.as_str()).collect();
        let lines: String = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = canonical_query(query);
        let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{}\n{payload}", names.join(";"));
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
            self.access,
            self.scope(&date),
            names.join(";"),
            self.signature(&date, &canonical),
        );
        let own = all.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        own.chain([("authorization".to_string(), authorization)]).collect()
    }

    /// Makes a presigned target: its signature covers the host, and the query with `more` in it.
    pub fn presign(&self, method: &str, target: &str, expires: u64) -> String {
        let date = date();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let credential = format!("{}/{}", self.access, self.scope(&date)).replace('/', "%2F");
        let own = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={date}&X-Amz-Expires={expires}&X-Amz-SignedHeaders=host"
        );
        let query = canonical_query(&if query.is_empty() { own } else { format!("{query}&{own}") });
        let canonical = format!("{method}\n{path}\n{query}\nhost:localhost\n\nhost\nUNSIGNED-PAYLOAD");
        format!("{path}?{query}&X-Amz-Signature={}", self.signature(&date, &canonical))
    }

    /// Sends a signed request.
    pub fn ask(
        &self,
        client: &mut Client,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        ask_with(client, method, target, &self.sign(method, target, fields, body), body)
    }
}

/// Returns the parameters in order, each with its `=`.
fn canonical_query(query: &str) -> String {
    let mut parameters: Vec<String> = query
        .split('&')
        .filter(|parameter| !parameter.is_empty())
        .map(|parameter| if parameter.contains('=') { parameter.into() } else { format!("{parameter}=") })
        .collect();
    parameters.sort();
    parameters.join("&")
}

/// Sends a request with the fields that a signer made.
pub fn ask_with(
    client: &mut Client,
    method: &str,
    target: &str,
    fields: &[(String, String)],
    body: &[u8],
) -> Answer {
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    client.ask(method, target, &fields, body)
}
