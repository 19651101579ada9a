//! Limits on waiting for a busy service.

use std::time::Duration;

use super::Answer;

/// The retry budget of one request. Use it only for requests that may safely be sent twice.
#[derive(Debug, Default)]
pub struct Patience {
    repeated: u32,
}

impl Patience {
    /// Maximum number of times that a request is repeated.
    const MOST: u32 = 3;

    /// Returns how long to wait before the request is repeated: the time that the service names,
    /// limited to 1 to 20 s. Returns `None` if the caller must use this answer, because the service
    /// is not busy or the budget is used up.
    pub fn pause_before_repeat(&mut self, answer: &Answer) -> Option<Duration> {
        let seconds = answer.retry_after()?;
        if self.repeated == Self::MOST {
            return None;
        }
        self.repeated += 1;
        // The service must not be able to make this machine wait for long.
        Some(Duration::from_secs(seconds.clamp(1, 20)))
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderMap, RETRY_AFTER};

    use super::*;

    impl Answer {
        fn without_body(status: u16) -> Self {
            Self {
                status,
                headers: HeaderMap::new(),
                body: Vec::new(),
                asked_by: None,
            }
        }
    }

    #[test]
    fn a_busy_service_is_asked_three_times_more_and_names_a_bounded_pause() {
        let busy = |status, wait: &str| {
            let mut answer = Answer::without_body(status);
            let wait = wait.parse().expect("a header");
            answer.headers.insert(RETRY_AFTER, wait);
            answer
        };
        for (status, wait, pause) in [
            (503, "1", Some(1)),
            (429, "0", Some(1)),
            (429, "7", Some(7)),
            (503, "3600", Some(20)),
            (503, "soon", None),
            (500, "1", None),
            (201, "1", None),
        ] {
            let mut patience = Patience::default();
            let pauses = [(); 4].map(|()| patience.pause_before_repeat(&busy(status, wait)));
            let pause = pause.map(Duration::from_secs);
            assert_eq!(pauses, [pause, pause, pause, None], "{status} {wait}");
        }
        let unnamed = Patience::default().pause_before_repeat(&Answer::without_body(503));
        assert_eq!(unnamed, None);
    }
}
