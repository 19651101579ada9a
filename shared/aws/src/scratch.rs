//! Test support: an emulator of S3 and DynamoDB.
