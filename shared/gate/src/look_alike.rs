//! Letters of other scripts that look like Latin letters.

/// Returns the Latin letter that a letter of another script looks like, or the same character if
/// there is none.
pub(crate) const fn look_alike(character: char) -> char {
    // Upper and lower case are listed separately, because they can look like different Latin
    // letters: Greek `Ν` like `N`, but `ν` like `v`. The result is lower case, since callers
    // compare it so.
    match character {
        'а' | 'А' | 'α' | 'Α' => 'a',
        'в' | 'В' | 'Β' => 'b',
        'с' | 'С' | 'ϲ' => 'c',
        'ԁ' => 'd',
        'е' | 'Е' | 'ё' | 'Ε' => 'e',
        'һ' | 'Н' | 'Η' => 'h',
        'і' | 'І' | 'ι' | 'Ι' | 'ı' => 'i',
        'ј' | 'Ј' => 'j',
        'К' | 'к' | 'Κ' | 'κ' => 'k',
        'ӏ' | 'Ӏ' => 'l',
        'М' | 'Μ' => 'm',
        'Ν' | 'ո' => 'n',
        'о' | 'О' | 'ο' | 'Ο' | 'օ' => 'o',
        'р' | 'Р' | 'ρ' | 'Ρ' => 'p',
        'ԛ' => 'q',
        'ѕ' | 'Ѕ' => 's',
        'Т' | 'т' | 'Τ' | 'τ' => 't',
        'ս' | 'υ' => 'u',
        'ν' | 'ѵ' => 'v',
        'ԝ' => 'w',
        'х' | 'Х' | 'χ' | 'Χ' => 'x',
        'у' | 'У' | 'Υ' => 'y',
        'Ζ' => 'z',
        other => other,
    }
}
