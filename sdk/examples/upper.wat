(module
  (type (;0;) (func (result i32)))
  (type (;1;) (func (param i32) (result i32)))
  (type (;2;) (func (param i32 i32) (result i32)))
  (table (;0;) 1 1 funcref)
  (memory (;0;) 18)
  (global (;0;) (mut i32) i32.const 1048576)
  (export "memory" (memory 0))
  (export "dcs_operator" (func 0))
  (export "dcs_start" (func 1))
  (export "dcs_step" (func 2))
  (func (;0;) (type 0) (result i32)
    i32.const 0
    i32.const 65536
    i32.store offset=1048592
    i32.const 0
    i32.const 1048672
    i32.store offset=1048588
    i32.const 0
    i32.const 65536
    i32.store offset=1048584
    i32.const 0
    i32.const 1048672
    i32.store offset=1048580
    i32.const 0
    i32.const 1
    i32.store offset=1048576
    i32.const 1048576
  )
  (func (;1;) (type 1) (param i32) (result i32)
    local.get 0
    i32.const 0
    i32.ne
  )
  (func (;2;) (type 2) (param i32 i32) (result i32)
    (local i32 i32 i32 i32)
    block ;; label = @1
      local.get 0
      i32.eqz
      br_if 0 (;@1;)
      i32.const 0
      local.set 2
      block ;; label = @2
        local.get 0
        i32.const 1
        i32.eq
        br_if 0 (;@2;)
        local.get 0
        i32.const 1
        i32.and
        local.set 3
        local.get 0
        i32.const -2
        i32.and
        local.set 4
        i32.const 0
        local.set 2
        loop ;; label = @3
          local.get 2
          i32.const 1048672
          i32.add
          local.tee 5
          local.get 5
          i32.load8_u
          local.tee 5
          i32.const -32
          i32.add
          local.get 5
          local.get 5
          i32.const -97
          i32.add
          i32.const 255
          i32.and
          i32.const 26
          i32.lt_u
          select
          i32.store8
          local.get 2
          i32.const 1048673
          i32.add
          local.tee 5
          local.get 5
          i32.load8_u
          local.tee 5
          i32.const -32
          i32.add
          local.get 5
          local.get 5
          i32.const -97
          i32.add
          i32.const 255
          i32.and
          i32.const 26
          i32.lt_u
          select
          i32.store8
          local.get 4
          local.get 2
          i32.const 2
          i32.add
          local.tee 2
          i32.ne
          br_if 0 (;@3;)
        end
        local.get 3
        i32.eqz
        br_if 1 (;@1;)
      end
      local.get 2
      local.get 2
      i32.load8_u offset=1048672
      local.tee 5
      i32.const -32
      i32.add
      local.get 5
      local.get 5
      i32.const -97
      i32.add
      i32.const 255
      i32.and
      i32.const 26
      i32.lt_u
      select
      i32.store8 offset=1048672
    end
    i32.const 0
    local.get 0
    i32.store offset=1048600
    i32.const 0
    local.get 0
    i32.store offset=1048596
    local.get 1
    i32.const 0
    i32.ne
  )
)
