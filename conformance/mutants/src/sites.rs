//! The places of a source file that a mutant can change, found in its syntax tree.

use std::ops::Range;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Expr, ImplItemFn, Item, ItemFn, Lit, Pat, Stmt, Type, UnOp};

/// A change of one place.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    /// The bytes of the expression or statement that the change replaces.
    pub(crate) range: Range<usize>,
    /// The part of these bytes that differs after the change.
    pub(crate) part: Range<usize>,
    /// What stands there instead.
    pub(crate) with: String,
    /// What changes, for people: `+ -> -`.
    pub(crate) change: String,
}

impl Site {
    /// Returns the line of the place with the change in it: `let mut last = [«0 -> 1»; BLOCK];`. A
    /// change of several lines is written as one.
    pub(crate) fn in_line(&self, text: &str) -> String {
        let before = text[..self.part.start].lines().next_back().unwrap_or_default();
        let before = if text[..self.part.start].ends_with('\n') { "" } else { before };
        let after = text[self.part.end..].lines().next().unwrap_or_default();
        let words: Vec<_> = self.change.split_whitespace().collect();
        format!("{}«{}»{}", before.trim_start(), words.join(" "), after.trim_end())
    }
}

/// Returns the places of a file, in the order of the file.
pub(crate) fn sites(text: &str) -> syn::Result<Vec<Site>> {
    let mut finder = Finder { text, sites: Vec::new() };
    finder.visit_file(&syn::parse_file(text)?);
    Ok(finder.sites)
}

/// Operators, and what stands in place of each.
const OPERATORS: [(&str, &str); 25] = [
    ("+", "-"),
    ("-", "+"),
    ("*", "+"),
    ("/", "*"),
    ("%", "/"),
    ("<", "<="),
    ("<=", "<"),
    (">", ">="),
    (">=", ">"),
    ("==", "!="),
    ("!=", "=="),
    ("&&", "||"),
    ("||", "&&"),
    ("&", "|"),
    ("|", "&"),
    ("^", "|"),
    ("<<", ">>"),
    (">>", "<<"),
    ("+=", "-="),
    ("-=", "+="),
    ("&=", "|="),
    ("|=", "&="),
    ("^=", "|="),
    ("<<=", ">>="),
    (">>=", "<<="),
];

/// Methods and intrinsics, and what is called in place of each.
const CALLS: [(&str, &str); 20] = [
    ("wrapping_add", "wrapping_sub"),
    ("wrapping_sub", "wrapping_add"),
    ("wrapping_mul", "wrapping_add"),
    ("rotate_left", "rotate_right"),
    ("rotate_right", "rotate_left"),
    ("from_le_bytes", "from_be_bytes"),
    ("from_be_bytes", "from_le_bytes"),
    ("leading_zeros", "trailing_zeros"),
    ("trailing_zeros", "leading_zeros"),
    ("min", "max"),
    ("max", "min"),
    ("any", "all"),
    ("all", "any"),
    ("is_some", "is_none"),
    ("is_none", "is_some"),
    ("is_ok", "is_err"),
    ("is_err", "is_ok"),
    ("xor", "or"),
    ("and", "or"),
    ("or", "and"),
];

/// Parts of the names of intrinsics, and what stands in place of each.
const INTRINSICS: [(&str, &str); 6] = [
    ("_add_", "_sub_"),
    ("_sub_", "_add_"),
    ("_xor_", "_or_"),
    ("_and_", "_or_"),
    ("_or_", "_and_"),
    ("_unpacklo_", "_unpackhi_"),
];

struct Finder<'t> {
    text: &'t str,
    sites: Vec<Site>,
}

impl Finder<'_> {
    fn source(&self, span: Span) -> &str {
        &self.text[span.byte_range()]
    }

    /// Adds a site that replaces `inner`, a part of `whole`.
    fn replace(&mut self, whole: Span, inner: Span, with: &str) {
        let (outer, part) = (whole.byte_range(), inner.byte_range());
        let text = format!(
            "{}{with}{}",
            &self.text[outer.start..part.start],
            &self.text[part.end..outer.end]
        );
        let change = format!("{} -> {with}", self.source(inner));
        self.sites.push(Site { range: outer, part, with: text, change });
    }

    /// Replaces the name of an intrinsic among the tokens of a macro's call.
    fn intrinsics(&mut self, whole: Span, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    let name = ident.to_string();
                    let found = INTRINSICS.iter().find(|(part, _)| name.contains(part));
                    if let (true, Some((part, other))) = (name.starts_with("_mm"), found) {
                        self.replace(whole, ident.span(), &name.replacen(part, other, 1));
                    }
                }
                TokenTree::Group(group) => self.intrinsics(whole, group.stream()),
                _ => {}
            }
        }
    }
}

/// Returns `true` if an expression has a `let` in its conditions: it cannot stand in a branch.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.meta.require_list().ok();
        let tests = list.is_some_and(|list| list.tokens.to_string() == "test");
        attribute.path().is_ident("test") || (attribute.path().is_ident("cfg") && tests)
    })
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        // The compiler computes constants, where nothing can be chosen when the program runs.
        let is_skipped = match item {
            Item::Const(_) | Item::Static(_) | Item::Enum(_) | Item::Macro(_) => true,
            Item::Mod(module) => is_test(&module.attrs),
            Item::Impl(block) => is_test(&block.attrs),
            _ => false,
        };
        if !is_skipped {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if function.sig.constness.is_none() && !is_test(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        // What a value looks like to people is no kernel and no parser.
        let name = function.sig.ident.to_string();
        if function.sig.constness.is_none() && !is_test(&function.attrs) && name != "fmt" {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}

    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}

    fn visit_pat(&mut self, _: &'ast Pat) {}

    fn visit_type(&mut self, _: &'ast Type) {}

    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        // Each kind of statement keeps its attributes elsewhere, but all of them stand before it.
        if self.source(statement.span()).starts_with("#[cfg(test)]") {
            return;
        }
        // A statement whose value is dropped does something else: it goes.
        if let Stmt::Expr(expression, Some(end)) = statement {
            let is_call = matches!(expression, Expr::MethodCall(_) | Expr::Assign(_));
            let is_assignment =
                matches!(expression, Expr::Binary(binary) if is_assigning(binary.op));
            if is_call || is_assignment {
                let range = expression.span().byte_range();
                let whole = range.start..end.span().byte_range().end;
                let change = format!("{} -> nothing", self.source(expression.span()));
                let part = whole.clone();
                self.sites.push(Site { range: whole, part, with: String::new(), change });
            }
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        let whole = expression.span();
        match expression {
            Expr::Binary(binary) if !has_let(expression) => {
                let name = self.source(binary.op.span()).to_owned();
                if let Some((_, other)) = OPERATORS.iter().find(|(operator, _)| *operator == name) {
                    self.replace(whole, binary.op.span(), other);
                }
            }
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                self.replace(whole, unary.op.span(), "");
            }
            Expr::Lit(literal) => match &literal.lit {
                Lit::Bool(bool) => {
                    let other = if bool.value { "false" } else { "true" };
                    self.replace(whole, whole, other);
                }
                Lit::Int(int) => {
                    if let Ok(value) = int.base10_parse::<u128>() {
                        let other = format!("{}{}", value + 1, int.suffix());
                        self.replace(whole, whole, &other);
                    }
                }
                _ => {}
            },
            Expr::MethodCall(call) => {
                let name = call.method.to_string();
                if let Some((_, other)) = CALLS.iter().find(|(method, _)| *method == name) {
                    self.replace(whole, call.method.span(), other);
                }
            }
            Expr::Path(path) => {
                if let Some(last) = path.path.segments.last() {
                    let name = last.ident.to_string();
                    if let Some((_, other)) = CALLS.iter().find(|(method, _)| *method == name) {
                        self.replace(whole, last.ident.span(), other);
                    }
                }
            }
            Expr::Macro(call) => self.intrinsics(whole, call.mac.tokens.clone()),
            _ => {}
        }
        visit::visit_expr(self, expression);
    }
}

fn is_assigning(operator: BinOp) -> bool {
    matches!(
        operator,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

#[cfg(test)]
mod tests {
    use super::sites;

    fn changes(text: &str) -> Vec<String> {
        sites(text).expect("Rust").into_iter().map(|site| site.change).collect()
    }

    #[test]
    fn code_of_tests_has_no_places() {
        assert_eq!(changes("fn f() -> u8 { g(); 1 + x }"), ["+ -> -", "1 -> 2"]);
        for test in [
            "#[test] fn f() { assert(1) }",
            "#[cfg(test)] fn f() -> u8 { 1 }",
            "#[cfg(test)] mod tests { fn f() -> u8 { 1 } }",
            "#[cfg(test)] impl A { fn f() -> u8 { 1 } }",
            "impl A { #[cfg(test)] fn f() -> u8 { 1 } }",
            "fn f() { #[cfg(test)] LOOKS.set(LOOKS.get() + 1); }",
            "fn f() { #[cfg(test)] let x = 1; }",
        ] {
            assert!(changes(test).is_empty(), "{test}");
        }
    }
}
