#include "units/tma.hpp"

#include <algorithm>

namespace emu::tma {
namespace {

void append(std::vector<Run>& runs, const Run& run) {
    if (run.bytes == 0) return;
    if (!runs.empty()) {
        Run& last = runs.back();
        const bool follows = last.shared + last.bytes == run.shared && last.inside() == run.inside() &&
                             (!run.inside() || last.global + last.bytes == run.global);
        if (follows) {
            last.bytes += run.bytes;
            return;
        }
    }
    runs.push_back(run);
}

// Bytes that stay together in both memories.
std::uint32_t grain_of(const TensorMap& map) {
    if (map.element().unit_data != 16) return 16;
    switch (map.swizzle) {
        case Swizzle::none:
            return map.row_bytes();
        case Swizzle::b128_atom32_flip8:
            return 8;
        default:
            return 16;
    }
}

class Walk {
  public:
    Walk(const TensorMap& map, const Coordinates& at, std::uint32_t shared, Clip clip)
        : map_(map), at_(at), shared_(shared), grain_(grain_of(map)) {
        unit_data_ = grain_ * map.element().unit_data / 16;
        first_ = static_cast<std::int64_t>(at[0]) * map.element().bits / 8;
        limit_ = static_cast<std::int64_t>(map.dim[0] * map.element().bits / 8);
        if (clip == Clip::units) limit_ = (limit_ + 15) / 16 * 16;
    }

    Box take() {
        axis(map_.rank - 1, map_.address, true);
        return std::move(box_);
    }

    Box take_pixels(const Offsets& offsets) {
        const std::uint32_t space = map_.rank - 2;
        Coordinates pixel = at_;
        for (std::uint32_t k = 0; k < map_.box[1]; ++k) {
            std::uint64_t base = map_.address;
            bool inside = true;
            for (std::uint32_t axis = 1; axis < map_.rank; ++axis) {
                const std::int64_t index =
                    std::int64_t{pixel[axis]} + (axis <= space ? offsets[axis - 1] : 0);
                inside &= index >= 0 && static_cast<std::uint64_t>(index) < map_.dim[axis];
                base += static_cast<std::uint64_t>(index) * map_.pitch[axis];
            }
            row(base, inside);
            next(pixel, space);
        }
        return std::move(box_);
    }

    Box take_rows() {
        for (std::uint32_t k = 1; k <= 4; ++k) {
            const std::int64_t index = at_[k];
            row(map_.address + static_cast<std::uint64_t>(index) * map_.pitch[1],
                index >= 0 && static_cast<std::uint64_t>(index) < map_.dim[1]);
        }
        return std::move(box_);
    }

  private:
    void next(Coordinates& pixel, std::uint32_t space) const {
        for (std::uint32_t axis = 1; axis <= space; ++axis) {
            pixel[axis] += static_cast<std::int32_t>(map_.step[axis]);
            if (pixel[axis] < static_cast<std::int64_t>(map_.dim[axis]) + map_.upper[axis - 1]) return;
            pixel[axis] = map_.lower[axis - 1];
        }
        ++pixel[space + 1];
    }

    void axis(std::uint32_t number, std::uint64_t base, bool inside) {
        if (number == 0) return row(base, inside);
        for (std::uint32_t k = 0; k < map_.box[number]; k += map_.step[number]) {
            const std::int64_t index = std::int64_t{at_[number]} + k;
            const bool here = inside && index >= 0 && static_cast<std::uint64_t>(index) < map_.dim[number];
            axis(number - 1, base + static_cast<std::uint64_t>(index) * map_.pitch[number], here);
        }
    }

    void row(std::uint64_t base, bool inside) {
        const std::uint32_t start = shared_ + line_++ * map_.row_pitch();
        std::int64_t from = first_;
        box_.bytes += map_.row_bytes() / grain_ * unit_data_;
        if (inside && from >= 0 && from + map_.row_bytes() / grain_ * unit_data_ <= limit_) {
            for (std::uint32_t done = 0; done < map_.row_bytes(); done += grain_, from += unit_data_)
                append(box_.runs, {base + static_cast<std::uint64_t>(from),
                                   swizzled(map_.swizzle, start + done), unit_data_});
            return;
        }
        for (std::uint32_t done = 0; done < map_.row_bytes(); done += grain_, from += unit_data_) {
            const std::uint32_t place = swizzled(map_.swizzle, start + done);
            const auto end = from + unit_data_;
            const std::int64_t low = inside ? std::clamp<std::int64_t>(0, from, end) : end;
            const std::int64_t high = inside ? std::clamp<std::int64_t>(limit_, low, end) : end;
            const auto part = [&](std::int64_t begin, std::int64_t stop, bool valid) {
                append(box_.runs, {valid ? base + static_cast<std::uint64_t>(begin) : 0,
                                   place + static_cast<std::uint32_t>(begin - from),
                                   static_cast<std::uint32_t>(stop - begin)});
            };
            part(from, low, false);
            part(low, high, true);
            part(high, end, false);
        }
    }

    const TensorMap& map_;
    const Coordinates& at_;
    std::uint32_t shared_, grain_, unit_data_ = 0, line_ = 0;
    std::int64_t first_ = 0, limit_ = 0;
    Box box_;
};

}  // namespace

Box box_at(const TensorMap& map, const Coordinates& at, std::uint32_t shared, Clip clip) {
    return Walk(map, at, shared, clip).take();
}

Box pixels_at(const TensorMap& map, const Coordinates& at, const Offsets& offsets, std::uint32_t shared,
              Clip clip) {
    return Walk(map, at, shared, clip).take_pixels(offsets);
}

Box rows_at(const TensorMap& map, const Coordinates& at, std::uint32_t shared, Clip clip) {
    return Walk(map, at, shared, clip).take_rows();
}

std::uint32_t extent(const TensorMap& map) {
    if (map.im2col) return map.box[1] * map.row_pitch();
    std::uint32_t rows = 1;
    for (std::uint32_t axis = 1; axis < map.rank; ++axis)
        rows *= (map.box[axis] + map.step[axis] - 1) / map.step[axis];
    return rows * map.row_pitch();
}

std::vector<Box> split(const Box& box, std::uint32_t parts) {
    std::vector<Box> cut(1);
    std::uint32_t done = 0;
    for (Run run : box.runs) {
        while (run.bytes > 0) {
            const std::uint64_t number = cut.size();
            const auto end = number == parts
                                 ? box.bytes
                                 : static_cast<std::uint32_t>(box.bytes / 16 * number / parts * 16);
            if (done == end) {
                cut.emplace_back();
                continue;
            }
            Run piece = run;
            piece.bytes = std::min(run.bytes, end - done);
            cut.back().runs.push_back(piece);
            cut.back().bytes += piece.bytes;
            done += piece.bytes;
            run.shared += piece.bytes;
            if (run.inside()) run.global += piece.bytes;
            run.bytes -= piece.bytes;
        }
    }
    return cut;
}

}  // namespace emu::tma
