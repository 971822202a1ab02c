//! The bucket itself: there, and as it must be. For the operator only.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Bucket, KvError};
use crate::api::Code;

/// What is asked of the stream behind a bucket.
#[derive(Debug, Deserialize)]
pub(super) struct Info {
    pub(super) config: Value,
}

impl Bucket {
    /// Creates the bucket when it is missing, and raises its copies to `replicas`. Whether anything was written.
    pub async fn ensure(&self, replicas: u32) -> Result<bool, KvError> {
        let (info, created) = match self.info().await {
            Ok(info) => (info, false),
            Err(KvError::BucketMissing { .. }) => {
                self.create_stream(replicas).await?;
                (self.info().await?, true)
            }
            Err(error) => return Err(error),
        };
        self.check(&info.config)?;
        Ok(self.repair(info.config, replicas).await? || created)
    }

    pub(super) async fn info(&self) -> Result<Info, KvError> {
        let operation = format!("STREAM.INFO.{}", self.stream());
        self.connection().api(&operation, &Value::Null).await.map_err(|error| self.api_error(error))
    }

    async fn create_stream(&self, replicas: u32) -> Result<(), KvError> {
        let config = json!({
            "name": self.stream(),
            "subjects": [self.subject(">")],
            "max_msgs_per_subject": 1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "max_consumers": -1,
            "discard": "new",
            "storage": "file",
            "retention": "limits",
            "num_replicas": replicas,
            "allow_rollup_hdrs": true,
            "deny_delete": true,
            "allow_direct": true,
        });
        let operation = format!("STREAM.CREATE.{}", self.stream());
        match self.connection().api::<Value>(&operation, &config).await {
            Ok(_) => Ok(()),
            // Somebody else made it in the meantime; whether it is fit is looked at next.
            Err(error) if error.code() == Some(Code::StreamNameInUse) => Ok(()),
            Err(error) => Err(self.api_error(error)),
        }
    }

    /// What cannot be repaired because it would lose or overlook records.
    fn check(&self, config: &Value) -> Result<(), KvError> {
        let unfit = |why: String| Err(KvError::BucketUnfit { bucket: self.name().to_owned(), why });
        let subjects: Vec<&str> =
            config["subjects"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if subjects != [self.subject(">")] {
            return unfit(format!(
                "its subjects are '{}', must be '{}'",
                subjects.join(", "),
                self.subject(">")
            ));
        }
        if config["retention"] != "limits" {
            return unfit(format!("its retention is {}, must be \"limits\"", config["retention"]));
        }
        if !config["mirror"].is_null() {
            return unfit("it is a mirror, which takes no writes".into());
        }
        for limit in ["max_age", "max_msgs", "max_bytes"] {
            if config[limit].as_i64().is_some_and(|value| value > 0) {
                return unfit(format!(
                    "its {limit} is {}, which can lose records; must be unlimited",
                    config[limit]
                ));
            }
        }
        Ok(())
    }

    async fn repair(&self, mut config: Value, replicas: u32) -> Result<bool, KvError> {
        let has = config["num_replicas"].as_u64().unwrap_or(1);
        let direct = config["allow_direct"].as_bool().unwrap_or(false);
        if has >= u64::from(replicas) && direct {
            return Ok(false);
        }
        config["num_replicas"] = has.max(u64::from(replicas)).into();
        config["allow_direct"] = true.into();
        let operation = format!("STREAM.UPDATE.{}", self.stream());
        let updated: Result<Value, _> = self.connection().api(&operation, &config).await;
        updated.map(|_| true).map_err(|error| self.api_error(error))
    }
}
