//! Listings: objects, in both versions, and uploads.

use super::Api;
use super::common::{etag, timestamp};
use crate::store::{Listing, ListingPage, UploadListing};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

/// Most entries on a page. S3's own limit.
const PAGE_MAX: i32 = 1000;

/// Checks the requested number of entries.
fn page(asked: Option<i32>) -> S3Result<usize> {
    let asked = asked.unwrap_or(PAGE_MAX);
    let valid = usize::try_from(asked.min(PAGE_MAX));
    valid.map_err(|_| s3_error!(InvalidArgument, "the number of entries must not be negative"))
}

/// Encoding of names that the client wants, since XML does not allow all bytes.
struct Encoding(bool);

impl Encoding {
    fn asked(encoding: Option<&EncodingType>) -> S3Result<Encoding> {
        match encoding.map(EncodingType::as_str) {
            None => Ok(Encoding(false)),
            Some("url") => Ok(Encoding(true)),
            Some(_) => Err(s3_error!(InvalidArgument, "the only encoding-type is url")),
        }
    }

    fn name(&self, name: &str) -> String {
        if self.0 {
            // S3 leaves slashes as they are.
            name.split('/').map(|part| urlencoding::encode(part)).collect::<Vec<_>>().join("/")
        } else {
            name.to_string()
        }
    }
}

fn objects(listed: &ListingPage, encoding: &Encoding, owners: bool) -> Vec<Object> {
    let object = |(key, object): &(String, crate::store::record::Object)| Object {
        key: Some(encoding.name(key)),
        e_tag: Some(etag(&object.etag)),
        size: i64::try_from(object.size).ok(),
        last_modified: Some(timestamp(object.modified)),
        storage_class: Some("STANDARD".to_string().into()),
        owner: owners.then(Owner::default),
        ..Default::default()
    };
    listed.objects.iter().map(object).collect()
}

fn prefixes(listed: &[String], encoding: &Encoding) -> Vec<CommonPrefix> {
    listed.iter().map(|prefix| CommonPrefix { prefix: Some(encoding.name(prefix)) }).collect()
}

fn listing(
    prefix: Option<&String>,
    delimiter: Option<&String>,
    after: Option<String>,
    max: usize,
) -> Listing {
    Listing {
        prefix: prefix.cloned().unwrap_or_default(),
        delimiter: delimiter.filter(|delimiter| !delimiter.is_empty()).cloned(),
        after: after.filter(|after| !after.is_empty()),
        max,
    }
}

async fn list(api: &Api, bucket: &str, listing: &Listing) -> S3Result<ListingPage> {
    api.store.settle().await?;
    Ok(api.store.list(bucket, listing)?)
}

/// Lists objects, version 1.
pub async fn v1(api: &Api, request: S3Request<ListObjectsInput>) -> S3Result<S3Response<ListObjectsOutput>> {
    let input = request.input;
    super::buckets::exists(api, &input.bucket)?;
    let encoding = Encoding::asked(input.encoding_type.as_ref())?;
    let max = page(input.max_keys)?;
    let listing = listing(input.prefix.as_ref(), input.delimiter.as_ref(), input.marker.clone(), max);
    let listed = list(api, &input.bucket, &listing).await?;
    Ok(S3Response::new(ListObjectsOutput {
        contents: Some(objects(&listed, &encoding, true)),
        common_prefixes: Some(prefixes(&listed.prefixes, &encoding)),
        is_truncated: Some(listed.next.is_some()),
        next_marker: listed.next.map(|next| encoding.name(&next)),
        name: Some(input.bucket),
        prefix: Some(encoding.name(&input.prefix.unwrap_or_default())),
        marker: Some(encoding.name(&input.marker.unwrap_or_default())),
        delimiter: input.delimiter.map(|delimiter| encoding.name(&delimiter)),
        max_keys: i32::try_from(max).ok(),
        encoding_type: input.encoding_type,
        ..Default::default()
    }))
}

/// Lists objects, version 2.
pub async fn v2(
    api: &Api,
    request: S3Request<ListObjectsV2Input>,
) -> S3Result<S3Response<ListObjectsV2Output>> {
    let input = request.input;
    super::buckets::exists(api, &input.bucket)?;
    let encoding = Encoding::asked(input.encoding_type.as_ref())?;
    let max = page(input.max_keys)?;
    let after = match &input.continuation_token {
        Some(token) => Some(after_token(token)?),
        None => input.start_after.clone(),
    };
    let listing = listing(input.prefix.as_ref(), input.delimiter.as_ref(), after, max);
    let listed = list(api, &input.bucket, &listing).await?;
    let count = listed.objects.len() + listed.prefixes.len();
    Ok(S3Response::new(ListObjectsV2Output {
        contents: Some(objects(&listed, &encoding, input.fetch_owner.unwrap_or(false))),
        common_prefixes: Some(prefixes(&listed.prefixes, &encoding)),
        is_truncated: Some(listed.next.is_some()),
        next_continuation_token: listed.next.as_deref().map(token),
        key_count: i32::try_from(count).ok(),
        name: Some(input.bucket),
        prefix: Some(encoding.name(&input.prefix.unwrap_or_default())),
        delimiter: input.delimiter.map(|delimiter| encoding.name(&delimiter)),
        max_keys: i32::try_from(max).ok(),
        continuation_token: input.continuation_token,
        start_after: input.start_after.map(|after| encoding.name(&after)),
        encoding_type: input.encoding_type,
        ..Default::default()
    }))
}

/// Lists versions. Each object has one, which S3 calls `null`.
pub async fn versions(
    api: &Api,
    request: S3Request<ListObjectVersionsInput>,
) -> S3Result<S3Response<ListObjectVersionsOutput>> {
    let input = request.input;
    super::buckets::exists(api, &input.bucket)?;
    let encoding = Encoding::asked(input.encoding_type.as_ref())?;
    let max = page(input.max_keys)?;
    let listing = listing(input.prefix.as_ref(), input.delimiter.as_ref(), input.key_marker.clone(), max);
    let listed = list(api, &input.bucket, &listing).await?;
    let version = |object: Object| ObjectVersion {
        key: object.key,
        e_tag: object.e_tag,
        size: object.size,
        last_modified: object.last_modified,
        owner: object.owner,
        storage_class: Some(ObjectVersionStorageClass::from_static(ObjectVersionStorageClass::STANDARD)),
        version_id: Some("null".to_string()),
        is_latest: Some(true),
        ..Default::default()
    };
    let versions = objects(&listed, &encoding, true).into_iter().map(version);
    Ok(S3Response::new(ListObjectVersionsOutput {
        versions: Some(versions.collect()),
        common_prefixes: Some(prefixes(&listed.prefixes, &encoding)),
        is_truncated: Some(listed.next.is_some()),
        next_version_id_marker: listed.next.as_ref().map(|_| "null".to_string()),
        next_key_marker: listed.next.map(|next| encoding.name(&next)),
        name: Some(input.bucket),
        prefix: Some(encoding.name(&input.prefix.unwrap_or_default())),
        delimiter: input.delimiter.map(|delimiter| encoding.name(&delimiter)),
        key_marker: Some(encoding.name(&input.key_marker.unwrap_or_default())),
        version_id_marker: input.version_id_marker,
        max_keys: i32::try_from(max).ok(),
        encoding_type: input.encoding_type,
        ..Default::default()
    }))
}

/// Lists uploads in progress.
pub async fn uploads(
    api: &Api,
    request: S3Request<ListMultipartUploadsInput>,
) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
    let input = request.input;
    super::buckets::exists(api, &input.bucket)?;
    let encoding = Encoding::asked(input.encoding_type.as_ref())?;
    let max = page(input.max_uploads)?;
    let after = input.key_marker.clone().filter(|marker| !marker.is_empty());
    let listing = UploadListing {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: input.delimiter.clone().filter(|delimiter| !delimiter.is_empty()),
        after: after.map(|after| (after, input.upload_id_marker.clone().filter(|marker| !marker.is_empty()))),
        max,
    };
    let listed = api.store.uploads(&input.bucket, &listing)?;
    let uploads = listed.uploads.into_iter().map(|(key, id, upload)| MultipartUpload {
        key: Some(encoding.name(&key)),
        upload_id: Some(id),
        initiated: Some(timestamp(upload.initiated)),
        owner: Some(Owner { id: Some(upload.owner.clone()), display_name: Some(upload.owner.clone()) }),
        initiator: Some(Initiator { id: Some(upload.owner.clone()), display_name: Some(upload.owner) }),
        storage_class: Some("STANDARD".to_string().into()),
        ..Default::default()
    });
    let (next_key, next_id) = listed.next.unzip();
    Ok(S3Response::new(ListMultipartUploadsOutput {
        uploads: Some(uploads.collect()),
        common_prefixes: Some(prefixes(&listed.prefixes, &encoding)),
        is_truncated: Some(next_key.is_some()),
        next_key_marker: next_key.map(|key: String| encoding.name(&key)),
        next_upload_id_marker: next_id.flatten(),
        bucket: Some(input.bucket),
        prefix: input.prefix.map(|prefix| encoding.name(&prefix)),
        delimiter: input.delimiter.map(|delimiter| encoding.name(&delimiter)),
        key_marker: input.key_marker.map(|marker| encoding.name(&marker)),
        upload_id_marker: input.upload_id_marker,
        max_uploads: i32::try_from(max).ok(),
        encoding_type: input.encoding_type,
        ..Default::default()
    }))
}

/// Makes the token with which a client continues a listing after this name.
pub fn token(name: &str) -> String {
    URL_SAFE_NO_PAD.encode(name)
}

/// Decodes a token to the last name of the previous page.
///
/// # Errors
///
/// Fails if this server did not make the token.
pub fn after_token(token: &str) -> S3Result<String> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok();
    let name = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    name.ok_or_else(|| s3_error!(InvalidArgument, "the continuation token is not one of this server's"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_encoded() {
        let encoding = Encoding::asked(Some(&EncodingType::from("url".to_string()))).unwrap();
        assert_eq!(encoding.name("a b/c\u{1}ü"), "a%20b/c%01%C3%BC");
        assert!(Encoding::asked(Some(&EncodingType::from("gzip".to_string()))).is_err());
    }

    #[test]
    fn tokens_are_this_server_s() {
        assert_eq!(after_token(&URL_SAFE_NO_PAD.encode("a/b")).unwrap(), "a/b");
        assert!(after_token("!").is_err());
    }
}
