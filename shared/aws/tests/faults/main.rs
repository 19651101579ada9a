//! What DynamoDB and S3 may answer, by script: nothing of it reads as "absent", "failed" or "done"
//! when it was not said.

mod live;
mod objects;
mod records;
mod stub;
