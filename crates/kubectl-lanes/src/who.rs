//! Who calls: the name under which the API server knows the caller, for what is recorded. I/O.

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{Api, Client, api::PostParams};

/// The user's name; something that says so when the API server does not tell it.
pub(crate) async fn am_i(client: &Client) -> String {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let user = review.ok().and_then(|review| review.status?.user_info?.username);
    user.filter(|name| !name.is_empty())
        .unwrap_or_else(|| "somebody whom the API server does not name".into())
}
