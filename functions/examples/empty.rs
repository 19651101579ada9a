//! A function that does nothing: what starting any function costs. The benchmarks compare with it;
//! it is never deployed.

use lambda_http::{Body, Error, Request, Response, run, service_fn};

fn main() -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let nothing = |_: Request| async { Ok::<_, Error>(Response::new(Body::Empty)) };
    runtime.block_on(run(service_fn(nothing)))
}
