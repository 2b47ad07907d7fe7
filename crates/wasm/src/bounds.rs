//! Limits on resources that fuel and the limits of memory do not cover.
//!
//! At each call of a function the interpreter clears its frame and copies the function's constants into it without charging fuel,
//! so a frame has to be small. An instance holds the module's exports and segments, so there must not be many. These are checked
//! before the interpreter sees the module, because it panics if operands are nested too deep.

use wasmparser::{BinaryReaderError, FuncValidatorAllocations, FunctionBody, Operator};
use wasmparser::{ElementItems, Parser, Payload, ValidPayload, Validator, WasmFeatures};

use crate::load::LoadError;

/// Most local variables of a function, without its parameters.
const LOCALS: u64 = 256;
/// Most operands on a function's stack.
const OPERANDS: u64 = 256;
/// Most constants and conditional branches in a function's code.
const CONSTANTS: u64 = 2048;
/// Parameters, and results, of a type: the interpreter's limit.
const VALUES: u64 = 32;
/// Most exports of a module.
const EXPORTS: u64 = 1000;
/// Most items of all element segments of a module.
const ITEMS: u64 = 65_536;

/// Features that the interpreter is configured for.
const FEATURES: WasmFeatures = WasmFeatures::MUTABLE_GLOBAL
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::REFERENCE_TYPES)
    .union(WasmFeatures::GC_TYPES)
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::FLOATS);

impl From<BinaryReaderError> for LoadError {
    fn from(error: BinaryReaderError) -> LoadError {
        // Some of its messages have many lines.
        let words = error.to_string();
        LoadError::Invalid(words.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// Checks a whole module, in time linear in its bytes.
pub(crate) fn check(bytes: &[u8]) -> Result<(), LoadError> {
    let mut validator = Validator::new_with_features(FEATURES);
    let mut allocations = FuncValidatorAllocations::default();
    let mut items = 0;
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        match &payload {
            Payload::TypeSection(types) => {
                for function in types.clone().into_iter_err_on_gc_types() {
                    let function = function?;
                    let values = function.params().len().max(function.results().len());
                    at_most("parameters or results of a function", values as u64, VALUES)?;
                }
            }
            Payload::ExportSection(exports) => at_most("exports", exports.count().into(), EXPORTS)?,
            Payload::ElementSection(segments) => {
                for segment in segments.clone() {
                    let count = match segment?.items {
                        ElementItems::Functions(functions) => functions.count(),
                        ElementItems::Expressions(_, expressions) => expressions.count(),
                    };
                    items += u64::from(count);
                    at_most("items of element segments", items, ITEMS)?;
                }
            }
            Payload::CodeSectionEntry(body) => locals(body)?,
            _ => {}
        }
        if let ValidPayload::Func(function, body) = validator.payload(&payload)? {
            let mut function = function.into_validator(allocations);
            let mut reader = body.get_binary_reader();
            function.read_locals(&mut reader)?;
            let mut constants = 0;
            while !reader.eof() {
                let offset = reader.original_position();
                let operator = reader.peek_operator(&function.visitor(offset))?;
                reader.visit_operator(&mut function.visitor(offset))??;
                at_most("operands of a function at once", function.operand_stack_height().into(), OPERANDS)?;
                constants += u64::from(makes_constant(&operator));
                at_most("constants and conditional branches of a function", constants, CONSTANTS)?;
            }
            reader.finish_expression(&function.visitor(reader.original_position()))?;
            allocations = function.into_allocations();
        }
    }
    Ok(())
}

/// Counts a body's locals. A group of locals is a number and a type, so the numbers are added before any local exists.
fn locals(body: &FunctionBody<'_>) -> Result<(), LoadError> {
    let mut locals = 0;
    for group in body.get_locals_reader()? {
        locals += u64::from(group?.0);
        at_most("local variables of a function", locals, LOCALS)?;
    }
    Ok(())
}

/// Returns true for operators from which the interpreter may derive a constant: those that read one (a global's value may be
/// one), and those that make new ones from a single one. The distance of a conditional branch is a constant too, if it is far.
fn makes_constant(operator: &Operator<'_>) -> bool {
    use Operator as O;
    matches!(
        operator,
        O::I32Const { .. }
            | O::I64Const { .. }
            | O::F32Const { .. }
            | O::F64Const { .. }
            | O::GlobalGet { .. }
            | O::BrIf { .. }
            | O::If { .. }
            | O::F32Sqrt
            | O::F64Sqrt
            | O::I32ReinterpretF32
            | O::I64ReinterpretF64
            | O::F32ReinterpretI32
            | O::F64ReinterpretI64
    )
}

fn at_most(what: &'static str, count: u64, most: u64) -> Result<(), LoadError> {
    if count > most { Err(LoadError::TooMany { what, most }) } else { Ok(()) }
}
