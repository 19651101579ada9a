//! Runs the rules over a text whose structure is known. First it finds the words that rules need,
//! then it tries the expressions where these occur, then it decides how much each match weighs:
//! whether it blocks, warns or is only a hint.

use super::quote;
use super::segment::{Segments, Span};
use super::words::Words;
use crate::rule::{Act, CompiledRule, Lazy, ScanRule, Scope, Seen, place};
use crate::rules::{files, flow};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Maximum number of bytes that are read to weigh the matches of a rule in one scope. All matches
/// are weighed, because a harmless example may come before an attack. If a scope needs more bytes,
/// the first match that was not weighed is flagged, because it or a later one may be an attack.
const MOST_WEIGHED: u64 = 2 << 20;

/// Maximum number of matches that are followed one by one, for a rule about data that is sent away,
/// to find the one that is sent. If there are more, and none of these blocks, the next one is
/// flagged.
const MOST_FOLLOWED: usize = 8;

/// All rules, ready to run.
struct Engine {
    rules: Vec<CompiledRule>,
    words: Words,
    /// For each word, by its number, the groups that contain it.
    groups_of: Vec<Vec<u16>>,
    /// For each group, the rule whose first group it is, if any.
    leads: Vec<Option<u16>>,
}

static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new(crate::rules::all()));

/// Calls that start a process, in the programming languages of skills.
pub(super) static STARTS_PROCESS: Lazy = Lazy::new(
    r"\bsystem\s*[(\x22'`%]|\b(?:io\.)?popen|\bopen3|subprocess|\bexec(?:ute|sync|file|filesync|v|ve|vp|l|lp|\.command(?:context)?)?\s*[(\x22']|\bspawn(?:sync)?\s*\(|child_process|shell_exec|passthru|proc_open|\bsh -c|\bcommand::new|process\.start|startprocess|start-process|\beval\s*[(\x22']|\brun\s*\(\s*\[?|\.run\s+[\x22']|wscript\.shell|shellexecute|runtime\.getruntime|processbuilder|\bshelljs|\bexeca|do shell script|nstask|\$`|%x[({\[]|\bqx\W|\b(?:ba)?sh -c",
);

/// A call of a function of the language itself, which acts without a process.
pub(super) static IS_CALL: Lazy = Lazy::new(r"^[a-z_][\w.]*\(");

impl Engine {
    fn new(rules: impl Iterator<Item = &'static ScanRule>) -> Self {
        let mut words: Vec<&str> = Vec::new();
        let mut numbers = HashMap::new();
        let mut groups_of: Vec<Vec<u16>> = Vec::new();
        let mut leads = Vec::new();
        let mut ready = Vec::new();
        for (index, rule) in rules.enumerate() {
            let mut groups = Vec::new();
            for (place, group) in rule.needs.iter().enumerate() {
                let number = u16::try_from(leads.len()).unwrap_or(u16::MAX);
                // Only the first group of a rule leads to the rule, so that it is tried once in a
                // scope and not once for each of its groups.
                leads.push((place == 0).then(|| u16::try_from(index).unwrap_or(u16::MAX)));
                groups.push(number);
                for word in *group {
                    let at = *numbers.entry(*word).or_insert_with(|| {
                        words.push(word);
                        groups_of.push(Vec::new());
                        words.len() - 1
                    });
                    groups_of[at].push(number);
                }
            }
            let lazies = |patterns: &'static [&'static str]| {
                patterns.iter().map(|pattern| Lazy::new(pattern)).collect()
            };
            ready.push(CompiledRule {
                rule,
                all: lazies(rule.all),
                eases: lazies(rule.eases),
                second: lazies(rule.second),
                groups,
            });
        }
        Self {
            rules: ready,
            words: Words::new(&words),
            groups_of,
            leads,
        }
    }
}

/// A rule that matched in a text, and what the match does to the skill.
pub(super) struct RuleHit {
    pub rule: &'static ScanRule,
    pub act: Act,
    /// The scope in which the rule matched.
    pub span: Span,
    /// Offset of the hit in the text.
    pub at: usize,
    /// Length from there to the end of the first expression's match.
    pub length: usize,
    /// Text that the message adds to the matched words.
    pub detail: Option<String>,
    /// Match of the second expression, if it is in another statement.
    pub other: Option<std::ops::Range<usize>>,
}

/// A text over which the rules run.
#[derive(Clone, Copy)]
pub(super) struct ScannedText<'a> {
    /// The text in lower case, as the expressions require.
    pub bytes: &'a [u8],
    pub segments: &'a Segments,
    /// Publishers from whom the skill comes (owners of repositories and hosts), lower case.
    pub publisher: &'a [String],
    /// The amount of work after which no further span is examined.
    pub max_work: Option<u64>,
}

/// Runs every rule over the text. Adds the amount of work to `work`.
pub(super) fn run_rules(text: ScannedText<'_>, work: &mut u64) -> Vec<RuleHit> {
    let ScannedText {
        bytes, segments, ..
    } = text;
    let mut rule_hits = Vec::new();
    let engine = &*ENGINE;
    *work += bytes.len() as u64;
    // The hits are sorted by their beginnings. A word belongs to the scope in which it begins.
    let hits = engine.words.find(bytes);
    if hits.is_empty() {
        return rule_hits;
    }
    for (scope, spans) in [
        (Scope::Statement, &segments.statements),
        (Scope::Block, &segments.blocks),
        (Scope::Section, &segments.sections),
    ] {
        let mut first = 0;
        let mut groups: Vec<u16> = Vec::new();
        // For each group, the number of the last span that contains one of its words.
        let mut last = vec![0; engine.leads.len()];
        for (number, span) in (1_usize..).zip(spans) {
            // Return without a hit: the caller has set the bound and reports that it was reached.
            if text.max_work.is_some_and(|most| *work > most) {
                return rule_hits;
            }
            // Do not skip hits before the end of the span: windows of a long line overlap, so the
            // next span may contain the same words.
            while first < hits.len() && hits[first].0 < span.start {
                first += 1;
            }
            groups.clear();
            let here = hits[first..].iter().take_while(|hit| hit.0 < span.end);
            for group in here.flat_map(|hit| &engine.groups_of[hit.1]) {
                let last = &mut last[usize::from(*group)];
                if *last != number {
                    *last = number;
                    groups.push(*group);
                }
            }
            // Try the rules in their own order and not in that of their words in the text, so that
            // findings always have the same order.
            groups.sort_unstable();
            for group in &groups {
                let Some(lead) = engine.leads[usize::from(*group)] else {
                    continue;
                };
                let ready = &engine.rules[usize::from(lead)];
                if ready.rule.scope != scope
                    || span.place & ready.rule.places_with_headings() == 0
                    || !ready
                        .groups
                        .iter()
                        .all(|group| last[usize::from(*group)] == number)
                {
                    continue;
                }
                let mut trial = RuleTrial {
                    ready,
                    whole: text,
                    span: *span,
                    cache: MatchCache::default(),
                    work,
                };
                trial.try_rule(&mut rule_hits);
            }
        }
    }
    rule_hits
}

/// The attempt to match one rule in one span of a text.
struct RuleTrial<'a> {
    ready: &'a CompiledRule,
    whole: ScannedText<'a>,
    span: Span,
    /// Answers that were computed for earlier matches.
    cache: MatchCache,
    /// The amount of work so far.
    work: &'a mut u64,
}

impl<'a> RuleTrial<'a> {
    fn text(&self) -> &'a [u8] {
        &self.whole.bytes[self.span.start..self.span.end]
    }

    /// Finds the match of the rule in the span that weighs most. Flags the span if it has more
    /// matches than can be weighed.
    fn try_rule(&mut self, found: &mut Vec<RuleHit>) {
        let (ready, span, text) = (self.ready, self.span, self.text());
        let Some((first, others)) = ready.all.split_first() else {
            found.extend(self.weigh_match(0..0));
            return;
        };
        if ready.rule.is_flow {
            self.try_flow(found);
            return;
        }
        let mut best: Option<RuleHit> = None;
        let mut from = 0;
        let begun = *self.work;
        while let Some(range) = first.find_at(text, from) {
            if *self.work - begun > MOST_WEIGHED * cost_of_check(ready.rule) {
                found.push(unweighed_hit(ready.rule, span, range));
                break;
            }
            // The other expressions do not depend on this match, so test them once, after the first
            // match.
            if from == 0 {
                for expression in others {
                    *self.work += text.len() as u64;
                    if !expression.is_match(text) {
                        return;
                    }
                }
            }
            *self.work += (range.end - from) as u64;
            // Move on even after an empty match, or the loop would never end.
            from = range.end.max(range.start + 1);
            keep_heavier(&mut best, self.weigh_match(range));
            if best.as_ref().is_some_and(is_settled) || from >= text.len() {
                break;
            }
        }
        found.extend(best);
    }

    /// Finds the match of the rule in the span that weighs most and is passed on to something that
    /// sends it. If no match is sent, reports the first one as a warning.
    fn try_flow(&mut self, rule_hits: &mut Vec<RuleHit>) {
        let (ready, whole, span, text) = (self.ready, self.whole, self.span, self.text());
        let Some((first, others)) = ready.all.split_first() else {
            return;
        };
        let mut sources: Vec<std::ops::Range<usize>> = Vec::new();
        let mut from = 0;
        while from < text.len()
            && let Some(range) = first.find_at(text, from)
        {
            from = range.end.max(range.start + 1);
            sources.push(range);
        }
        *self.work += (text.len() * (2 + others.len())) as u64;
        let Some(source) = sources.first().cloned() else {
            return;
        };
        if !others.iter().all(|other| other.is_match(text)) {
            return;
        }
        // Follow all sources together first: most sections send nothing, which one pass can show.
        let is_sent = flow::sender(text, &sources).is_some();
        if !is_sent && ready.rule.act != Act::Block {
            return;
        }
        let mut best: Option<RuleHit> = None;
        let mut followed = if is_sent {
            sources.into_iter()
        } else {
            vec![].into_iter()
        };
        for source in followed.by_ref().take(MOST_FOLLOWED) {
            *self.work += text.len() as u64;
            let Some(call) = flow::sender(text, std::slice::from_ref(&source)) else {
                continue;
            };
            let call = span.start + call.start..span.start + call.end;
            let hit = self.weigh_match(source).map(|hit| {
                let own = statement_of(whole, &hit);
                let other = Some(call).filter(|call| !(own.start..own.end).contains(&call.start));
                RuleHit { other, ..hit }
            });
            keep_heavier(&mut best, hit);
            if best.as_ref().is_some_and(is_settled) {
                break;
            }
        }
        if best.is_none() {
            best = self.weigh_match(source);
            // None of the matches that were followed is sent. If the section sends nothing at all,
            // the first match is only a warning.
            if let Some(hit) = best
                .as_mut()
                .filter(|hit| !is_sent && hit.act == Act::Block)
            {
                hit.act = Act::Warn;
            }
        }
        if is_sent
            && !best.as_ref().is_some_and(is_settled)
            && let Some(next) = followed.next()
        {
            rule_hits.push(unweighed_hit(ready.rule, span, next));
        }
        rule_hits.extend(best);
    }

    /// Decides whether a match of the rule's first expression counts, and what it does to the
    /// skill.
    fn weigh_match(&mut self, first: std::ops::Range<usize>) -> Option<RuleHit> {
        let (rule, span, text) = (self.ready.rule, self.span, self.text());
        let ScannedText {
            bytes, segments, ..
        } = self.whole;
        let holder = |at: usize| segments.statement_at(span.start + at).unwrap_or(span);
        let begun = holder(first.start);
        let seen = Seen {
            text,
            first: first.clone(),
            statement: &bytes[begun.start..begun.end],
            place: span.place,
        };
        let at = match rule.check {
            Some(check) => {
                *self.work += text.len() as u64 * cost_of_check(rule);
                check(&seen)?
            }
            None => first.start,
        };
        let detail = rule.detail.and_then(|detail| {
            *self.work += text.len() as u64;
            detail(&seen)
        });
        let other = match detail {
            Some(_) => None,
            None => self.second_match(),
        };
        // Judge the kind of place by the sentence or statement that contains the hit, because a
        // block may contain several kinds.
        let own = holder(at);
        if own.place & rule.places_with_headings() == 0 {
            return None;
        }
        let offset = span.start + at;
        let end = (span.start + first.end).max(offset);
        Some(RuleHit {
            rule,
            act: self.act_at(offset..end, own, &seen)?,
            span,
            at: offset,
            length: end - offset,
            detail,
            other: other
                .map(|found| span.start + found.start..span.start + found.end)
                .filter(|found| !(own.start..own.end).contains(&found.start)),
        })
    }

    /// Returns the match of the second expression in the span. It is searched once and then cached.
    fn second_match(&mut self) -> Option<std::ops::Range<usize>> {
        let text = self.text();
        let second = self.ready.all.get(1)?;
        let found = self.cache.other.get_or_insert_with(|| {
            *self.work += text.len() as u64;
            second.find(text)
        });
        found.clone()
    }

    /// Returns what a match in the statement `own` does to the skill; `None` if it is not a
    /// command.
    fn act_at(
        &mut self,
        matched: std::ops::Range<usize>,
        own: Span,
        seen: &Seen<'_>,
    ) -> Option<Act> {
        let ScannedText {
            bytes, segments, ..
        } = self.whole;
        let statement = &bytes[own.start..own.end];
        let block = segments.block_at(matched.start).unwrap_or(own);
        let place = (block.start.min(own.start), block.end.max(own.end));
        let block = &bytes[place.0..place.1];
        let context = quote::Context {
            statement,
            at: matched.start.saturating_sub(own.start),
            matched: &bytes[matched],
            place: own.place,
            heading: segments.heading_above(bytes, &own),
        };
        let MatchCache { traits, starts, .. } = &mut self.cache;
        if traits.as_ref().is_none_or(|traits| traits.0 != own.start) {
            *self.work += 3 * statement.len() as u64;
            *traits = Some((own.start, quote::StatementTraits::of(statement)));
        }
        let traits = &traits.as_ref()?.1;
        let starts_process = |work: &mut u64| {
            remember_answer(starts, place, block.len(), work, || {
                STARTS_PROCESS.is_match(block)
            })
        };
        let act = act_in_context(self.ready.rule, &context, traits, starts_process, self.work)?;
        if act == Act::Block && self.is_softened(place, own, seen) {
            return Some(Act::Warn);
        }
        Some(act)
    }

    /// Tells whether a blocking match becomes a warning: its block does not match `second`, its
    /// statement matches an expression of `eases`, or it names only addresses of the skill's
    /// publisher.
    fn is_softened(&mut self, place: (usize, usize), own: Span, seen: &Seen<'_>) -> bool {
        let Self {
            ready,
            whole,
            cache: memory,
            work,
            ..
        } = self;
        let rule = ready.rule;
        let statement = &whole.bytes[own.start..own.end];
        let block = &whole.bytes[place.0..place.1];
        let any = |all: &[Lazy], text: &[u8]| all.iter().any(|one| one.is_match(text));
        let cost = ready.second.len() * block.len();
        let lacks_second = !ready.second.is_empty()
            && !remember_answer(&mut memory.second, place, cost, work, || {
                any(&ready.second, block)
            });
        let cost = ready.eases.len() * statement.len();
        let is_eased = remember_answer(&mut memory.eased, own.start, cost, work, || {
            any(&ready.eases, statement)
        }) || rule.eased.is_some_and(|eased| {
            **work += seen.text.len() as u64;
            eased(seen)
        });
        // A closure, so that the addresses of the statement are parsed only if the other conditions
        // do not hold.
        let mut is_own = || {
            rule.installer && !whole.publisher.is_empty() && {
                **work += statement.len() as u64;
                is_published_by_sender(statement, whole.publisher)
            }
        };
        lacks_second || is_eased || is_own()
    }
}

/// Returns the work of a rule's check for each byte of its scope. A check that follows a file or a
/// variable to the line that runs it reads every line several times.
const fn cost_of_check(rule: &ScanRule) -> u64 {
    if rule.detail.is_some() && matches!(rule.scope, Scope::Section) {
        8
    } else {
        1
    }
}

/// Tells whether no other match can weigh more.
const fn is_settled(hit: &RuleHit) -> bool {
    hit.act.rank() <= hit.rule.act.rank()
}

/// Keeps the hit that weighs more, and the first of two equal ones.
fn keep_heavier(best: &mut Option<RuleHit>, hit: Option<RuleHit>) {
    if let Some(hit) = hit
        && best
            .as_ref()
            .is_none_or(|best| hit.act.rank() < best.act.rank())
    {
        *best = Some(hit);
    }
}

/// Returns the statement that contains a hit.
fn statement_of(whole: ScannedText<'_>, hit: &RuleHit) -> Span {
    whole.segments.statement_at(hit.at).unwrap_or(hit.span)
}

/// Returns the hit for matches that are too many to be weighed: a flag for a rule that blocks, else
/// the usual act of the rule.
fn unweighed_hit(rule: &'static ScanRule, span: Span, range: std::ops::Range<usize>) -> RuleHit {
    let is_blocking = rule.act == Act::Block;
    RuleHit {
        rule: if is_blocking { &files::UNWEIGHED } else { rule },
        act: rule.act,
        span,
        at: span.start + range.start,
        length: range.len(),
        detail: is_blocking.then(|| format!("they are of the rule `{}`", rule.rule.name)),
        other: None,
    }
}

/// Answers that are the same for all matches of a rule in one statement and one block. They make
/// many matches cost little more than one.
#[derive(Default)]
struct MatchCache {
    /// Match of the second expression in the scope.
    #[expect(
        clippy::option_option,
        reason = "it was not looked for, or is not there"
    )]
    other: Option<Option<std::ops::Range<usize>>>,
    /// For one block: whether an expression of `second` matches in it.
    second: Option<((usize, usize), bool)>,
    /// For one block: whether something in it starts a process.
    starts: Option<((usize, usize), bool)>,
    /// For the statement at one offset: whether an expression of `eases` matches in it.
    eased: Option<(usize, bool)>,
    /// For the statement at one offset: the properties that its matches share.
    traits: Option<(usize, quote::StatementTraits)>,
}

/// Returns the cached answer for a place, or computes it and counts the work.
fn remember_answer<K: PartialEq + Copy>(
    memory: &mut Option<(K, bool)>,
    key: K,
    cost: usize,
    work: &mut u64,
    find: impl FnOnce() -> bool,
) -> bool {
    // Cache only the last answer instead of a table: matches come in the order of the text, so
    // neighbours share their statement.
    if let Some((of, what)) = memory
        && *of == key
    {
        return *what;
    }
    *work += cost as u64;
    let what = find();
    *memory = Some((key, what));
    what
}

/// Returns what a hit does to the skill in its place. Returns `None` if it is an expression to
/// search for, and not a command.
fn act_in_context(
    rule: &ScanRule,
    context: &quote::Context<'_>,
    traits: &quote::StatementTraits,
    mut starts_process: impl FnMut(&mut u64) -> bool,
    work: &mut u64,
) -> Option<Act> {
    if rule.literal || rule.act != Act::Block {
        return Some(rule.act);
    }
    let is_code = context.place & place::CODE != 0 && context.place & place::SHELL == 0;
    let is_data = context.place & place::DATA != 0;
    if (is_code || is_data) && context.is_expression() {
        return None;
    }
    // In code that is not shell, a command is only a string until something starts a process with
    // it.
    let is_instruction = rule.places & place::PROSE != 0 && rule.places & place::SHELL == 0;
    let is_text = rule.command
        && is_code
        && !context.begins_statement()
        && !IS_CALL.is_match(context.matched)
        && !starts_process(work);
    // An agent follows the text in a string only if that string gives it instructions or documents
    // the code.
    let is_string = is_code && context.place & (place::PROSE | place::COMMENT) == 0;
    let is_value = (is_data && (rule.command || is_instruction) || is_string && is_instruction)
        && !context.is_acted_on(traits, rule.command);
    let is_pattern = (is_code || is_data) && context.is_in_pattern();
    // A command in a comment runs only if the reader is told to run it.
    let is_remark = rule.command && context.place & place::COMMENT != 0 && !traits.orders;
    // The text before the match is read again for each match, so count it.
    *work += context.at.min(quote::MOST_BEFORE) as u64;
    if is_text || is_value || is_pattern || is_remark || context.is_quotation(traits, rule.command)
    {
        return Some(Act::Warn);
    }
    Some(Act::Block)
}

/// Tells whether a statement names addresses, all of which belong to publishers of the skill.
fn is_published_by_sender(statement: &[u8], publisher: &[String]) -> bool {
    let mut urls = crate::rules::hosts::named(statement).peekable();
    urls.peek().is_some() && urls.all(|url| crate::rules::hosts::is_of_publisher(&url, publisher))
}
