//! Release builds contain no test doubles.

use crate::cargo;

#[test]
fn no_release_build_contains_test_doubles() {
    for shipped in ["vault-cli", "vault-functions"] {
        let tree = cargo(&[
            "tree",
            "--locked",
            "-p",
            shipped,
            "-e",
            "normal,features",
            "--prefix",
            "none",
        ]);
        assert!(tree.contains("vault-store"), "{tree}");
        assert!(
            !tree.contains("\"testing\""),
            "{shipped} is built with test doubles"
        );
    }
}
