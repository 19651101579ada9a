//! S3 and DynamoDB keep the contract of both data ports, on the emulator.

use std::sync::Arc;

use vault_aws::Aws;
use vault_store::random::SystemRandom;
use vault_testing::TestClock;
use vault_testing::aws;
use vault_testing::aws::Place;
use vault_testing::contract::{ObjectsFixture, RecordsFixture};
use vault_testing::servers::or_say_why;

/// A table and a bucket of their own and their clock, where this machine has the emulator.
async fn open() -> Option<(Aws, Arc<TestClock>, Place)> {
    let place = or_say_why(aws::place().await)?;
    let clock = Arc::new(TestClock::default());
    let aws = Aws::new(
        &place.config,
        &place.settings,
        clock.clone(),
        Arc::new(SystemRandom),
    );
    Some((aws, clock, place))
}

async fn objects_in_s3() -> Option<ObjectsFixture> {
    let (aws, _, place) = open().await?;
    Some(ObjectsFixture {
        objects: aws.objects(),
        keep: Box::new(place),
    })
}

async fn records_in_dynamodb() -> Option<RecordsFixture> {
    let (aws, clock, place) = open().await?;
    Some(RecordsFixture {
        records: aws.records(),
        clock,
        keep: Box::new(place),
    })
}

mod objects {
    vault_testing::objects_contract!(super::objects_in_s3());
}

mod records {
    vault_testing::records_contract!(super::records_in_dynamodb());
}
